//! The few calls of the C library that no safe crate offers.
#![allow(unsafe_code, reason = "calls of the C library without a safe form")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_link::{Addresses, LinkError, SharedMemory};

/// The unit in which memory is mapped.
pub(crate) const PAGE_BYTES: usize = 4096;

/// File descriptors that a daemon may want.
const DESCRIPTORS_MAX: u64 = 8_192;

/// A page of shared memory, as words.
#[derive(Debug)]
pub(crate) struct Words(Addresses);

impl Words {
    /// The first page.
    pub(crate) fn map(memory: &SharedMemory) -> Result<Self, LinkError> {
        let mut page = Addresses::reserve(PAGE_BYTES)?;
        page.map_shared(0, memory, 0, PAGE_BYTES)?;
        Ok(Self(page))
    }

    /// Sets a word; nothing where there is none.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if index < PAGE_BYTES / size_of::<AtomicU64>() {
            // SAFETY: the whole page is mapped for reading and writing, aligned, as long as `self` lives, and the index lies within it.
            // All who write it do so by atomic words.
            unsafe { self.0.base().cast::<AtomicU64>().add(index).as_ref() }
                .store(value, Ordering::Relaxed);
        }
    }
}

/// Writes out what C code has printed but still holds back.
pub(crate) fn flush_stdio() {
    // SAFETY: a null stream means all streams; the C library locks each.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends this process now, without running anything of a driver's.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// A file descriptor that becomes readable when this process is asked to end: SIGTERM, SIGINT. Threads that are started
/// later inherit the mask, so call this first.
pub(crate) fn end_signals() -> io::Result<OwnedFd> {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the pointer is to a local, the signal's number is valid.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: the set is initialised; no old set is asked for.
    let blocked =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets this process have as many file descriptors as the system allows it: 256 sessions and as many hellos need some 800, near
/// the usual 1,024. Workers inherit it; what they select(2) on is their drivers' business, which no driver does.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let enough = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < enough) {
        limit.current = Some(enough);
        // Without it, fewer clients fit.
        _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    }
}

/// Has the system end this process rather than others when memory runs out: what it has is its client's.
pub(crate) fn offer_to_oom_killer() {
    // Without it the system chooses by size alone.
    _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

/// Takes no signals off: a child process starts with the mask of its parent, and drivers expect none.
pub(crate) fn unblock_signals() {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: the set is initialised; no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}
