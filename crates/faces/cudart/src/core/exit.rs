//! Detects whether the process is ending, and whether it is a forked child. Exit handlers
//! unregister the binaries, and the driver may be gone by then.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static ENDS: AtomicBool = AtomicBool::new(false);

extern "C" fn ends() {
    ENDS.store(true, Ordering::Release);
}

/// Registers an exit handler that makes [`ending`] true. Handlers registered earlier run after it.
pub(crate) fn notice() {
    // SAFETY: the function only stores, and this library is never unloaded. If the call fails, the
    // only consequence is that the driver is asked to unload a module late.
    _ = unsafe { libc::atexit(ends) };
}

/// Process in which the first binary was registered; 0 before that.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Notes the process that registers the first binary.
pub(crate) fn note_home() {
    _ = HOME.compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Acquire);
}

/// Whether this process is a forked child. In a child, threads that it does not have may hold any
/// lock, and the driver belongs to the parent.
pub(crate) fn is_forked() -> bool {
    ![0, std::process::id()].contains(&HOME.load(Ordering::Acquire))
}

/// Whether the process is ending.
pub(crate) fn ending() -> bool {
    ENDS.load(Ordering::Acquire)
}
