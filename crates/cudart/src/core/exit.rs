//! Whether the process ends. Binaries are unregistered by handlers that run when it does, and by then the driver may be gone.

use std::sync::atomic::{AtomicBool, Ordering};

static ENDS: AtomicBool = AtomicBool::new(false);

extern "C" fn ends() {
    ENDS.store(true, Ordering::Release);
}

/// Has the end of the process noticed before the handlers that are registered by now run: handlers run in reverse order.
pub(crate) fn notice() {
    // SAFETY: a function that only stores; this library is never unloaded. Without the notice the driver is asked for nothing worse
    // than to unload a module late.
    _ = unsafe { libc::atexit(ends) };
}

/// Whether the process ends.
pub(crate) fn ending() -> bool {
    ENDS.load(Ordering::Acquire)
}
