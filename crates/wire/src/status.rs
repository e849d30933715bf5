//! The status with which a command or call ended.

use serde::{Deserialize, Serialize};

/// An OpenCL status code: 0 or positive for success, negative for an error. Codes of a driver
/// travel unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, Default)]
pub struct Status(pub i32);

impl Status {
    /// `CL_SUCCESS`, and as an event's status `CL_COMPLETE`.
    pub const OK: Self = Self(0);
    /// `CL_DEVICE_NOT_AVAILABLE`: the node or its worker is lost.
    pub const NODE_LOST: Self = Self(-2);
    pub const MEM_OBJECT_ALLOCATION_FAILURE: Self = Self(-4);
    /// `CL_OUT_OF_RESOURCES`: a limit of the session or the daemon was reached.
    pub const OUT_OF_RESOURCES: Self = Self(-5);
    pub const OUT_OF_HOST_MEMORY: Self = Self(-6);
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: an event of the wait list failed.
    pub const WAIT_LIST_FAILED: Self = Self(-14);
    pub const INVALID_VALUE: Self = Self(-30);
    pub const INVALID_DEVICE: Self = Self(-33);
    pub const INVALID_CONTEXT: Self = Self(-34);
    pub const INVALID_COMMAND_QUEUE: Self = Self(-36);
    pub const INVALID_MEM_OBJECT: Self = Self(-38);
    pub const INVALID_SAMPLER: Self = Self(-41);
    pub const INVALID_PROGRAM: Self = Self(-44);
    pub const INVALID_PROGRAM_EXECUTABLE: Self = Self(-45);
    pub const INVALID_KERNEL: Self = Self(-48);
    pub const INVALID_EVENT: Self = Self(-58);
    pub const INVALID_OPERATION: Self = Self(-59);

    pub const fn is_error(self) -> bool {
        self.0 < 0
    }

    /// Returns `Ok` for a success, otherwise the status as the error.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_error() { Err(self) } else { Ok(()) }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match crate::cuda::code(*self) {
            Some(code) => write!(f, "CUDA error {code}"),
            None => write!(f, "OpenCL status {}", self.0),
        }
    }
}

impl std::error::Error for Status {}
