//! The status with which a command or call ended.

use std::fmt;

use penstock_cl_sys::*;
use penstock_cuda_sys::driver::CUresult;
use serde::{Deserialize, Serialize};

/// An OpenCL status code: 0 or positive for success, negative for an error. Codes of a driver
/// travel unchanged. A status prints its name and number: `CL_OUT_OF_RESOURCES (-5)`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Status(pub i32);

impl Status {
    /// `CL_SUCCESS`, and as an event's status `CL_COMPLETE`.
    pub const OK: Self = Self(CL_SUCCESS);
    /// The node or its worker is lost.
    pub const NODE_LOST: Self = Self(CL_DEVICE_NOT_AVAILABLE);
    pub const MEM_OBJECT_ALLOCATION_FAILURE: Self = Self(CL_MEM_OBJECT_ALLOCATION_FAILURE);
    /// A limit of the session or the daemon was reached.
    pub const OUT_OF_RESOURCES: Self = Self(CL_OUT_OF_RESOURCES);
    pub const OUT_OF_HOST_MEMORY: Self = Self(CL_OUT_OF_HOST_MEMORY);
    /// An event of the wait list failed.
    pub const WAIT_LIST_FAILED: Self = Self(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    pub const INVALID_VALUE: Self = Self(CL_INVALID_VALUE);
    pub const INVALID_DEVICE: Self = Self(CL_INVALID_DEVICE);
    pub const INVALID_CONTEXT: Self = Self(CL_INVALID_CONTEXT);
    pub const INVALID_COMMAND_QUEUE: Self = Self(CL_INVALID_COMMAND_QUEUE);
    pub const INVALID_MEM_OBJECT: Self = Self(CL_INVALID_MEM_OBJECT);
    pub const INVALID_SAMPLER: Self = Self(CL_INVALID_SAMPLER);
    pub const INVALID_PROGRAM: Self = Self(CL_INVALID_PROGRAM);
    pub const INVALID_PROGRAM_EXECUTABLE: Self = Self(CL_INVALID_PROGRAM_EXECUTABLE);
    pub const INVALID_KERNEL: Self = Self(CL_INVALID_KERNEL);
    pub const INVALID_EVENT: Self = Self(CL_INVALID_EVENT);
    pub const INVALID_OPERATION: Self = Self(CL_INVALID_OPERATION);
    pub const INVALID_HOST_PTR: Self = Self(CL_INVALID_HOST_PTR);
    pub const INVALID_QUEUE_PROPERTIES: Self = Self(CL_INVALID_QUEUE_PROPERTIES);
    pub const INVALID_WORK_DIMENSION: Self = Self(CL_INVALID_WORK_DIMENSION);
    pub const INVALID_GLOBAL_OFFSET: Self = Self(CL_INVALID_GLOBAL_OFFSET);
    pub const INVALID_GLOBAL_WORK_SIZE: Self = Self(CL_INVALID_GLOBAL_WORK_SIZE);
    pub const INVALID_WORK_GROUP_SIZE: Self = Self(CL_INVALID_WORK_GROUP_SIZE);
    pub const BUILD_PROGRAM_FAILURE: Self = Self(CL_BUILD_PROGRAM_FAILURE);
    pub const COMPILE_PROGRAM_FAILURE: Self = Self(CL_COMPILE_PROGRAM_FAILURE);
    pub const LINK_PROGRAM_FAILURE: Self = Self(CL_LINK_PROGRAM_FAILURE);
    pub const COMPILER_NOT_AVAILABLE: Self = Self(CL_COMPILER_NOT_AVAILABLE);
    pub const LINKER_NOT_AVAILABLE: Self = Self(CL_LINKER_NOT_AVAILABLE);
    pub const INVALID_IMAGE_DESCRIPTOR: Self = Self(CL_INVALID_IMAGE_DESCRIPTOR);
    pub const INVALID_IMAGE_FORMAT_DESCRIPTOR: Self = Self(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    pub const INVALID_IMAGE_SIZE: Self = Self(CL_INVALID_IMAGE_SIZE);
    pub const INVALID_BUFFER_SIZE: Self = Self(CL_INVALID_BUFFER_SIZE);
    pub const IMAGE_FORMAT_MISMATCH: Self = Self(CL_IMAGE_FORMAT_MISMATCH);
    pub const INVALID_ARG_INDEX: Self = Self(CL_INVALID_ARG_INDEX);
    pub const INVALID_ARG_SIZE: Self = Self(CL_INVALID_ARG_SIZE);
    pub const INVALID_ARG_VALUE: Self = Self(CL_INVALID_ARG_VALUE);
    pub const INVALID_KERNEL_ARGS: Self = Self(CL_INVALID_KERNEL_ARGS);
    pub const INVALID_KERNEL_NAME: Self = Self(CL_INVALID_KERNEL_NAME);
    pub const INVALID_BUILD_OPTIONS: Self = Self(CL_INVALID_BUILD_OPTIONS);
    pub const INVALID_COMPILER_OPTIONS: Self = Self(CL_INVALID_COMPILER_OPTIONS);
    pub const INVALID_LINKER_OPTIONS: Self = Self(CL_INVALID_LINKER_OPTIONS);

    pub const fn is_error(self) -> bool {
        self.0 < 0
    }

    /// Returns `Ok` for a success, otherwise the status as the error.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_error() { Err(self) } else { Ok(()) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = status_name(self.0) {
            return write!(f, "{name} ({})", self.0);
        }
        match crate::cuda::code(*self).map(|code| (code, CUresult(code).entry())) {
            Some((code, Some(known))) => write!(f, "{} ({code})", known.name.to_string_lossy()),
            Some((code, None)) => write!(f, "CUDA error {code}"),
            None => write!(f, "OpenCL status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_prints_its_name_and_number() {
        for (status, text) in [
            (Status::OK, "CL_SUCCESS (0)"),
            (Status::OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES (-5)"),
            (Status::NODE_LOST, "CL_DEVICE_NOT_AVAILABLE (-2)"),
            (crate::cuda::status(719), "CUDA_ERROR_LAUNCH_FAILED (719)"),
            (crate::cuda::status(77), "CUDA error 77"),
            (Status(-9999), "OpenCL status -9999"),
        ] {
            assert_eq!(format!("{status} {status:?}"), format!("{text} {text}"));
        }
    }
}
