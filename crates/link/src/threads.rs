//! Threads inside other people's programs.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack of a helper thread, in bytes: it calls the system and little else.
pub(crate) const HELPER_STACK_BYTES: usize = 128 << 10;

/// Starts a thread that takes no signals: a program's handlers run on the program's own threads, as without us.
///
/// # Errors
/// When the system has no room for another thread.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A new thread inherits the mask of the thread that starts it.
    let before = block_signals();
    let thread = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(work);
    restore_signals(&before);
    thread
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigfillset(&raw mut all) };
    // Faults of the thread itself are never blocked: their default action, or the program's handler, must see them.
    for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
        // SAFETY: the pointer is to a local, the signal's number is valid.
        unsafe { libc::sigdelset(&raw mut all, fault) };
    }
    // SAFETY: both pointers are to locals; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a valid set; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
}
