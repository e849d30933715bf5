//! Whether the process ends, and whether it is the one that the program began as. Binaries are unregistered by handlers that run when it does, and by then the driver may be gone.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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

/// The process that the first binary was registered in; none is 0.
static HOME: AtomicU32 = AtomicU32::new(0);

/// A binary is registered.
pub(crate) fn note_home() {
    _ = HOME.compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Acquire);
}

/// Whether this is a forked child. Threads that it has not may hold any lock in it, and the driver is not its own.
pub(crate) fn is_forked() -> bool {
    ![0, std::process::id()].contains(&HOME.load(Ordering::Acquire))
}

/// Whether the process ends.
pub(crate) fn ending() -> bool {
    ENDS.load(Ordering::Acquire)
}
