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
            Some((code, Some((_, name, _)))) => write!(f, "{} ({code})", name.to_string_lossy()),
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
