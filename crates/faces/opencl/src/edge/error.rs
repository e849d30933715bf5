//! Errors of the API. Only this module converts errors of the pool to codes.

use penstock_cl_sys::{CL_OUT_OF_RESOURCES, cl_int};
use penstock_client::Error;
use penstock_process::log;
use penstock_wire::Status;

/// Negative code that an OpenCL function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClError(pub cl_int);

/// Result of the body of an entry point.
pub type ClResult<T = ()> = Result<T, ClError>;

/// Checks a condition.
///
/// # Errors
/// Fails with `code` unless `holds`.
#[inline]
pub const fn require(holds: bool, code: cl_int) -> ClResult {
    if holds { Ok(()) } else { Err(ClError(code)) }
}

impl From<Status> for ClError {
    fn from(status: Status) -> Self {
        // A failure must never look like a success, whatever a worker sent.
        Self(if status.is_error() { status.0 } else { CL_OUT_OF_RESOURCES })
    }
}

impl From<Error> for ClError {
    fn from(error: Error) -> Self {
        // The program gets a code, which says little.
        log!(Error, "{error}");
        error.status().into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use penstock_cl_sys::{CL_BUILD_PROGRAM_FAILURE, CL_DEVICE_NOT_AVAILABLE, CL_INVALID_VALUE};
    use penstock_link::LinkError;
    use penstock_wire::FrameError;

    #[test]
    fn every_error_has_its_code() {
        let node: Arc<str> = "n".into();
        let refused = |code| Error::Refused { node: node.clone(), status: Status(code) };
        let reason = Arc::new(LinkError::Fault("no".into()));
        let table = [
            (Error::Lost { node: node.clone(), reason: "gone".into() }, CL_DEVICE_NOT_AVAILABLE),
            (Error::Unreachable { address: node.clone(), reason }, CL_DEVICE_NOT_AVAILABLE),
            (Error::Frame(FrameError::PayloadTooShort), CL_OUT_OF_RESOURCES),
            (Error::Config("wrong".into()), CL_INVALID_VALUE),
            (refused(CL_BUILD_PROGRAM_FAILURE), CL_BUILD_PROGRAM_FAILURE),
            // A driver's own code passes unchanged; a code that is no error does not.
            (refused(-9999), -9999),
            (refused(0), CL_OUT_OF_RESOURCES),
            (refused(1), CL_OUT_OF_RESOURCES),
        ];
        for (error, code) in table {
            assert_eq!(ClError::from(error.clone()), ClError(code), "{error}");
        }
    }
}
