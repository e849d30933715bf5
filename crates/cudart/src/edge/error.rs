//! Errors of the interface: the one place where the driver's codes become the runtime's, and where errors are kept.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use penstock_cuda_sys::driver::{CUDA_SUCCESS, CUresult};
use penstock_cuda_sys::runtime_codes as code;

use super::THREAD;

/// A code other than `cudaSuccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtError(pub(crate) c_int);

/// What the body of an entry point returns.
pub(crate) type RtResult<T = ()> = Result<T, RtError>;

/// An error that ended the device's context: every later call has it too, until the device is reset. None is 0.
///
/// One for the process is enough: a program whose context is lost cannot go on, whichever device it was.
static STICKY: AtomicI32 = AtomicI32::new(code::SUCCESS);

impl RtError {
    pub(crate) const INVALID_VALUE: Self = Self(code::INVALID_VALUE);

    /// From the driver's code. The runtime has the driver's numbers.
    pub(crate) fn from_driver(result: CUresult) -> RtResult {
        if result == CUDA_SUCCESS {
            return Ok(());
        }
        let error = Self(result.0.cast_signed());
        if error.is_sticky() {
            STICKY.store(error.0, Ordering::Relaxed);
        }
        Err(error)
    }

    /// Whether nothing in the context works any more after it.
    const fn is_sticky(self) -> bool {
        matches!(
            self.0,
            code::ECC_UNCORRECTABLE
                | code::ILLEGAL_ADDRESS
                | code::LAUNCH_TIMEOUT
                | code::ASSERT
                | code::HARDWARE_STACK_ERROR
                | code::ILLEGAL_INSTRUCTION
                | code::MISALIGNED_ADDRESS
                | code::INVALID_ADDRESS_SPACE
                | code::INVALID_PC
                | code::LAUNCH_FAILURE
        )
    }

    /// "Not ready" is no error, and not kept as one.
    const fn is_kept(self) -> bool {
        self.0 != code::NOT_READY
    }

    /// Keeps the error for `cudaGetLastError`, and gives its code.
    pub(crate) fn keep(self) -> c_int {
        if self.is_kept() {
            THREAD.with(|thread| thread.last_error.set(self.0));
        }
        self.0
    }
}

/// `cudaPeekAtLastError`.
pub(crate) fn last_error() -> c_int {
    match STICKY.load(Ordering::Relaxed) {
        code::SUCCESS => THREAD.with(|thread| thread.last_error.get()),
        sticky => sticky,
    }
}

/// `cudaGetLastError`: what was kept is forgotten, unless it is sticky.
pub(crate) fn take_last_error() -> c_int {
    let error = last_error();
    THREAD.with(|thread| thread.last_error.set(code::SUCCESS));
    error
}

/// After a reset of the device.
pub(crate) fn forget_sticky() {
    STICKY.store(code::SUCCESS, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_and_not_ready_never() {
        assert_eq!(RtError(code::NOT_READY).keep(), code::NOT_READY);
        assert_eq!(take_last_error(), code::SUCCESS);
        assert_eq!(RtError(code::INVALID_VALUE).keep(), code::INVALID_VALUE);
        assert_eq!(last_error(), code::INVALID_VALUE);
        assert_eq!(take_last_error(), code::INVALID_VALUE);
        assert_eq!(take_last_error(), code::SUCCESS);
    }
}
