//! Threads inside other people's programs.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack of a helper thread in bytes; the thread mostly makes system calls.
pub(crate) const HELPER_STACK_BYTES: usize = 128 << 10;

/// Starts a thread that takes no signals, so that a program's handlers run on its own threads.
///
/// # Errors
/// Fails if the system cannot start another thread.
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
    // SAFETY: a signal set consists of plain bits, for which zero is a valid value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer refers to a local.
    unsafe { libc::sigfillset(&raw mut all) };
    // Faults of the thread are never blocked: default action or handler must see them.
    for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
        // SAFETY: the pointer refers to a local, and the signal number is valid.
        unsafe { libc::sigdelset(&raw mut all, fault) };
    }
    // SAFETY: both pointers refer to locals; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a valid set; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
}
