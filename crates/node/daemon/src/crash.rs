//! A fault of a kernel or a driver ends the worker. Before that, the client learns why: the thread
//! with the fault waits, and the thread that watches sends the session's last frame.
#![allow(unsafe_code, reason = "handles signals")]

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use penstock_wire::{Status, cuda};

/// Descriptor that wakes the watching thread.
static BELL: AtomicI32 = AtomicI32::new(-1);
/// Number of the first signal; 0 if there was none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Longest time for which a faulting thread waits, in seconds. After that the signal ends the
/// process as if nobody had handled it.
const WAIT_S: libc::time_t = 10;

/// `CUDA_ERROR_ILLEGAL_ADDRESS` and `CUDA_ERROR_ILLEGAL_INSTRUCTION`.
const ILLEGAL_ADDRESS: u32 = 700;
const ILLEGAL_INSTRUCTION: u32 = 715;

/// Calls only what POSIX allows in a handler, and changes nothing but atomic values.
extern "C" fn note(signal: libc::c_int) {
    _ = SIGNAL.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
    let (bell, one) = (BELL.load(Ordering::Acquire), 1_u64.to_ne_bytes());
    let wait = libc::timespec { tv_sec: WAIT_S, tv_nsec: 0 };
    // SAFETY: the buffers are local and of the given size, and the calls are allowed in a handler.
    // Then the thread repeats what has failed, and the default action ends the process.
    unsafe {
        if libc::write(bell, one.as_ptr().cast(), one.len()) > 0 {
            libc::nanosleep(&raw const wait, std::ptr::null_mut());
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// Notes faults of this process from now on. Call this before a driver is loaded, so that drivers
/// can handle signals themselves.
pub(crate) fn prepare() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL] {
        // SAFETY: an action is plain bits, for which zero is a value; the pointer is to a local,
        // and the handler lives as long as the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as libc::sighandler_t;
            // Rust's library has made a stack for handlers, for threads whose own is full.
            action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Has faults written to `bell`, an eventfd.
pub(crate) fn ring(bell: &OwnedFd) {
    BELL.store(bell.as_raw_fd(), Ordering::Release);
}

/// Returns what a fault means for the client, if there was one.
pub(crate) fn found() -> Option<(Status, String)> {
    let (name, what, code) = match SIGNAL.load(Ordering::Acquire) {
        0 => return None,
        libc::SIGILL => ("SIGILL", "executed an instruction that is none", ILLEGAL_INSTRUCTION),
        libc::SIGBUS => ("SIGBUS", "used memory that is not there", ILLEGAL_ADDRESS),
        _ => ("SIGSEGV", "used an address at which its device has no memory", ILLEGAL_ADDRESS),
    };
    let text = format!("a kernel, or the driver for it, {what} ({name})");
    Some((cuda::status(code), text))
}

/// Ends this process by the signal of its fault, if there was one, so that the daemon and the
/// system see what has ended it.
pub(crate) fn end() {
    let signal = SIGNAL.load(Ordering::Acquire);
    if signal != 0 {
        // SAFETY: the default action of these signals ends the process, whatever its threads do.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}
