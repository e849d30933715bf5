//! Forked children of the process that opened the pool.

use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cuda_sys::driver::CUDA_ERROR_NOT_INITIALIZED;

use super::error::CuResult;

/// Whether this process is a forked child of one that had opened the pool.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Makes [`check_process`] fail in children that the process forks from now on.
pub(crate) fn watch_forks() {
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Fails in a forked child. A child has no link to the pool and may hold locks of threads that it
/// does not have, so each function checks this first.
pub(crate) fn check_process() -> CuResult {
    if FORKED.load(Ordering::Relaxed) { Err(CUDA_ERROR_NOT_INITIALIZED) } else { Ok(()) }
}
