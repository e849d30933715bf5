//! The one place where errors of the pool become codes of the interface.

use penstock_cl_sys::*;
use penstock_client::Error;
use penstock_cuda_sys::driver::*;
use penstock_process::log;
use penstock_wire::Status;

/// Result of the body of an entry point.
pub(crate) type CuResult<T = ()> = Result<T, CUresult>;

/// Returns the error `code` unless `holds`.
#[inline]
pub(crate) const fn require(holds: bool, code: CUresult) -> CuResult {
    if holds { Ok(()) } else { Err(code) }
}

/// Returns the code of CUDA for a device's failure.
pub(crate) fn of_status(status: Status) -> CUresult {
    // The status may hold a code of CUDA's own driver.
    if let Some(code) = penstock_wire::cuda::code(status) {
        return CUresult(code);
    }
    match status.0 {
        CL_DEVICE_NOT_AVAILABLE => CUDA_ERROR_DEVICE_UNAVAILABLE,
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_INVALID_BUFFER_SIZE => {
            CUDA_ERROR_OUT_OF_MEMORY
        }
        CL_OUT_OF_RESOURCES | CL_INVALID_WORK_GROUP_SIZE | CL_INVALID_WORK_ITEM_SIZE => {
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        }
        CL_BUILD_PROGRAM_FAILURE => CUDA_ERROR_INVALID_PTX,
        code if code == Status::NODE_LOST.0 => CUDA_ERROR_DEVICE_UNAVAILABLE,
        _ => CUDA_ERROR_LAUNCH_FAILED,
    }
}

/// Returns the code for an error of the pool, and writes the whole error to the log.
pub(crate) fn of_error(error: &Error) -> CUresult {
    log!(Error, "{error}");
    match error {
        Error::Refused { status, .. } => of_status(*status),
        Error::Lost { .. } | Error::ContentLost | Error::Unreachable { .. } => {
            CUDA_ERROR_DEVICE_UNAVAILABLE
        }
        Error::Heap { status, .. } if penstock_wire::cuda::code(*status).is_some() => {
            of_status(*status)
        }
        Error::Frame(_) | Error::Heap { .. } => CUDA_ERROR_INVALID_VALUE,
        Error::Config(_) => CUDA_ERROR_INVALID_DEVICE,
        _ => CUDA_ERROR_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_code() {
        let refused = |code| Error::Refused { node: "n".into(), status: Status(code) };
        let table = [
            (
                Error::Lost { node: "n".into(), reason: "gone".into() },
                CUDA_ERROR_DEVICE_UNAVAILABLE,
            ),
            (Error::ContentLost, CUDA_ERROR_DEVICE_UNAVAILABLE),
            (Error::Frame(penstock_wire::FrameError::PayloadTooShort), CUDA_ERROR_INVALID_VALUE),
            (Error::Config("wrong".into()), CUDA_ERROR_INVALID_DEVICE),
            (Error::Heap { status: Status(-59), why: "no".into() }, CUDA_ERROR_INVALID_VALUE),
            (
                Error::Heap { status: penstock_wire::cuda::status(801), why: "no".into() },
                CUDA_ERROR_NOT_SUPPORTED,
            ),
            (refused(-4), CUDA_ERROR_OUT_OF_MEMORY),
            (refused(-5), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            (refused(-54), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            (refused(-11), CUDA_ERROR_INVALID_PTX),
            (refused(Status::NODE_LOST.0), CUDA_ERROR_DEVICE_UNAVAILABLE),
            (refused(-9999), CUDA_ERROR_LAUNCH_FAILED),
            // Status 0 is success, but a worker may send it in a refusal.
            (refused(0), CUDA_ERROR_LAUNCH_FAILED),
        ];
        for (error, code) in table {
            assert_eq!(of_error(&error), code, "{error}");
        }
    }
}
