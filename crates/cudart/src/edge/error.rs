//! Errors of the interface: the one place where the driver's codes become the runtime's, and where errors are kept.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use penstock_cuda_sys::driver::{CUDA_SUCCESS, CUresult};
use penstock_cuda_sys::runtime_codes as code;

use super::THREAD;

/// A code other than `cudaSuccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtError(pub(crate) c_int);

/// What the body of an entry point returns.
pub(crate) type RtResult<T = ()> = Result<T, RtError>;

/// Errors that ended contexts, by the context: every later call there has it too, until its device is reset.
static STICKY: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// Whether there is one: else nobody has to ask which context is current.
static ANY_STICKY: AtomicBool = AtomicBool::new(false);

fn sticky<T>(work: impl FnOnce(&mut Vec<(usize, c_int)>) -> T) -> T {
    work(&mut STICKY.lock().unwrap_or_else(PoisonError::into_inner))
}

impl RtError {
    pub(crate) const INVALID_VALUE: Self = Self(code::INVALID_VALUE);

    /// From the driver's code. The runtime has the driver's numbers.
    pub(crate) fn from_driver(result: CUresult) -> RtResult {
        if result == CUDA_SUCCESS {
            return Ok(());
        }
        Err(Self(result.0.cast_signed()))
    }

    /// Remembers that a context has ended by this error.
    #[cold]
    pub(crate) fn keep_for(self, context: usize) {
        sticky(|all| {
            if all.iter().all(|(of, _)| *of != context) {
                all.push((context, self.0));
            }
        });
        ANY_STICKY.store(true, Ordering::Release);
    }

    /// Whether nothing in the context works any more after it.
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

/// `cudaPeekAtLastError`. `current`: the context that the thread uses, if there is one.
pub(crate) fn last_error(current: impl FnOnce() -> Option<usize>) -> c_int {
    if ANY_STICKY.load(Ordering::Acquire)
        && let Some(context) = current()
        && let Some((_, error)) = sticky(|all| all.iter().find(|(of, _)| *of == context).copied())
    {
        return error;
    }
    THREAD.with(|thread| thread.last_error.get())
}

/// `cudaGetLastError`: what was kept is forgotten, unless it is sticky.
pub(crate) fn take_last_error(current: impl FnOnce() -> Option<usize>) -> c_int {
    let error = last_error(current);
    THREAD.with(|thread| thread.last_error.set(code::SUCCESS));
    error
}

/// After a reset of the device whose context it was.
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
        // The first error of a context stays with it until it is forgotten.
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
