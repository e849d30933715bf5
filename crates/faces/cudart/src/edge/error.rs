//! Conversion of the driver's error codes to the runtime's, and the errors kept for the program.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cuda_sys::driver::{CUDA_SUCCESS, CUresult};
use penstock_cuda_sys::runtime_codes as code;
use penstock_process::Lock;

use super::THREAD;

/// A code other than `cudaSuccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtError(pub(crate) c_int);

/// Result of the body of an entry point.
pub(crate) type RtResult<T = ()> = Result<T, RtError>;

/// Errors that ended contexts, by context. Every later call in such a context fails with its error
/// until the device is reset.
static STICKY: Lock<Vec<(usize, c_int)>> = Lock::new(Vec::new());

/// Whether [`STICKY`] has entries. If not, no call has to find out which context is current.
static ANY_STICKY: AtomicBool = AtomicBool::new(false);

fn sticky<T>(work: impl FnOnce(&mut Vec<(usize, c_int)>) -> T) -> T {
    work(&mut STICKY.lock())
}

impl RtError {
    pub(crate) const INVALID_VALUE: Self = Self(code::INVALID_VALUE);

    /// Converts the driver's code. The runtime uses the same numbers.
    pub(crate) fn from_driver(result: CUresult) -> RtResult {
        if result == CUDA_SUCCESS {
            return Ok(());
        }
        Err(Self(result.0.cast_signed()))
    }

    /// Records that this error ended a context.
    #[cold]
    pub(crate) fn keep_for(self, context: usize) {
        sticky(|all| {
            if all.iter().all(|(of, _)| *of != context) {
                all.push((context, self.0));
            }
        });
        ANY_STICKY.store(true, Ordering::Release);
    }

    /// Whether a context no longer works after this error.
    pub(crate) const fn is_sticky(self) -> bool {
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

    /// Whether the error is kept. `cudaErrorNotReady` is no failure.
    const fn is_kept(self) -> bool {
        self.0 != code::NOT_READY
    }

    /// Keeps the error for `cudaGetLastError` and returns its code.
    pub(crate) fn keep(self) -> c_int {
        if self.is_kept() {
            THREAD.with(|thread| thread.last_error.set(self.0));
        }
        self.0
    }
}

/// Implements `cudaPeekAtLastError`. `current` returns the thread's context, if there is one.
pub(crate) fn last_error(current: impl FnOnce() -> Option<usize>) -> c_int {
    if ANY_STICKY.load(Ordering::Acquire)
        && let Some(context) = current()
        && let Some((_, error)) = sticky(|all| all.iter().find(|(of, _)| *of == context).copied())
    {
        return error;
    }
    THREAD.with(|thread| thread.last_error.get())
}

/// Implements `cudaGetLastError`: forgets the error that it returns, unless the error is sticky.
pub(crate) fn take_last_error(current: impl FnOnce() -> Option<usize>) -> c_int {
    let error = last_error(current);
    THREAD.with(|thread| thread.last_error.set(code::SUCCESS));
    error
}

/// Forgets the sticky error of a context whose device was reset.
pub(crate) fn forget_sticky(context: usize) {
    sticky(|all| {
        all.retain(|(of, _)| *of != context);
        ANY_STICKY.store(!all.is_empty(), Ordering::Release);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_and_not_ready_never() {
        let nowhere = || None;
        assert_eq!(RtError(code::NOT_READY).keep(), code::NOT_READY);
        assert_eq!(take_last_error(nowhere), code::SUCCESS);
        assert_eq!(RtError(code::INVALID_VALUE).keep(), code::INVALID_VALUE);
        assert_eq!(last_error(nowhere), code::INVALID_VALUE);
        assert_eq!(take_last_error(nowhere), code::INVALID_VALUE);
        assert_eq!(take_last_error(nowhere), code::SUCCESS);
        // A context keeps its first error until that is forgotten.
        RtError(code::ASSERT).keep_for(1);
        RtError(code::LAUNCH_FAILURE).keep_for(1);
        RtError(code::LAUNCH_FAILURE).keep_for(2);
        forget_sticky(2);
        assert_eq!(
            [1, 2, 1].map(|of| take_last_error(|| Some(of))),
            [code::ASSERT, code::SUCCESS, code::ASSERT]
        );
        forget_sticky(1);
        assert_eq!(take_last_error(|| Some(1)), code::SUCCESS);
    }
}
