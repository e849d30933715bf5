//! Calls of the C library that no safe crate offers.
#![allow(unsafe_code, reason = "calls of the C library without a safe form")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_link::{Addresses, LinkError, SharedMemory};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};

/// Size of a page, the unit of mappings.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Most file descriptors that a daemon needs: see [`raise_descriptor_limit`], with room for the
/// descriptors that sessions have in flight.
const DESCRIPTORS_MAX: u64 = 8_192;

/// A page of shared memory as words.
#[derive(Debug)]
pub(crate) struct Words(Addresses);

impl Words {
    /// Maps the first page.
    pub(crate) fn map(memory: &SharedMemory) -> Result<Self, LinkError> {
        let mut page = Addresses::reserve(PAGE_BYTES)?;
        page.map_shared(0, memory, 0, PAGE_BYTES)?;
        Ok(Self(page))
    }

    /// Sets a word; does nothing if the index is out of bounds.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if index < PAGE_BYTES / size_of::<AtomicU64>() {
            // SAFETY: the whole page is mapped for reading and writing and aligned while `self`
            // lives, the index is within it, and all writers use atomic words.
            unsafe { self.0.base().cast::<AtomicU64>().add(index).as_ref() }
                .store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a word; does nothing if the index is out of bounds.
    pub(crate) fn add(&self, index: usize, more: u64) {
        if index < PAGE_BYTES / size_of::<AtomicU64>() {
            // SAFETY: as in `set`.
            unsafe { self.0.base().cast::<AtomicU64>().add(index).as_ref() }
                .fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// Returns how much memory of its own this process has in the host's memory, without files and
/// memory that it shares.
pub(crate) fn own_memory() -> Option<u64> {
    // "size resident shared text lib data dt", in pages.
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_ascii_whitespace().skip(1).map_while(|it| it.parse::<u64>().ok());
    let own = pages.next()?.saturating_sub(pages.next()?);
    Some(own.saturating_mul(rustix::param::page_size() as u64))
}

/// Writes out buffered output of C code.
pub(crate) fn flush_stdio() {
    // SAFETY: a null stream means all streams; the C library locks each.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends this process at once, without running exit handlers of drivers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: it ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// Closes all descriptors beyond the standard ones. Call this before this process has any of its
/// own: what its daemon was started with is not for the code of clients.
///
/// # Errors
/// Fails if the system cannot say which descriptors there are.
pub(crate) fn close_inherited() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: no code of this process has any of these descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) } == 0 {
        return Ok(());
    }
    // Linux before 5.9.
    for inherited in inherited()? {
        // SAFETY: as above. That of the folder itself is closed already: closing it again fails.
        unsafe { libc::close(inherited) };
    }
    Ok(())
}

/// Returns the descriptors beyond the standard ones, with that of the folder that lists them. The
/// folder is closed when this returns.
fn inherited() -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for name in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(name?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.retain(|number| *number >= 3);
    Ok(numbers)
}

/// Returns a descriptor that becomes readable when this process is asked to end (SIGTERM, SIGINT,
/// SIGHUP). Only threads that start later inherit the signal mask, so call this first.
pub(crate) fn end_signals() -> io::Result<OwnedFd> {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the pointer is to a local; the signal's number is valid.
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

pub(crate) fn timespec(duration: std::time::Duration) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Raises the limit of file descriptors as far as the system allows. 256 sessions need 1,280: the
/// control socket, the end, the logs of worker and foreman, and the client's connection of each. As
/// many hellos need one each. Workers get a part of the limit
/// (`penstock_confine::keep_descriptors`). A high limit would only harm drivers that use select(2),
/// and none does.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let enough = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < enough) {
        limit.current = Some(enough);
        // If this fails, fewer clients fit.
        _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    }
}

/// Which processes the system ends first if memory runs out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OomPriority {
    /// After the builders and before others: its memory is its client's.
    Worker = 500,
    /// First: it costs one build.
    Builder = 900,
}

/// A process's entry in the order in which the system ends processes.
#[derive(Debug)]
pub(crate) struct OomEntry(Option<std::fs::File>);

impl OomEntry {
    /// Opens the entry of this process. Call this before files are restricted.
    pub(crate) fn of_this_process() -> Self {
        Self(std::fs::File::create("/proc/self/oom_score_adj").ok())
    }

    /// Sets the priority of this process, which later copies of it inherit.
    pub(crate) fn set(&self, priority: OomPriority) {
        if let Some(file) = &self.0 {
            // If this fails, the system chooses by size alone.
            _ = file.write_all_at((priority as u32).to_string().as_bytes(), 0);
        }
    }
}

/// The side on which [`fork`] returns.
#[derive(Debug)]
pub(crate) enum Forked {
    Child,
    /// In the process that called it. The child has this number.
    Parent(Pid),
}

/// Fails if this process has more than one thread.
fn only_thread() -> io::Result<()> {
    match penstock_confine::threads::of_this_process()?.len() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!("{threads} threads run already"))),
    }
}

/// Copies this process.
///
/// # Errors
/// The process has more than one thread, or the system refuses.
pub(crate) fn fork() -> io::Result<Forked> {
    only_thread()?;
    // SAFETY: this is the only thread, so no other one holds a lock that the copy would need.
    let child = unsafe { libc::fork() };
    forked(child)
}

/// Returns whether there was a moment, just now, at which all other threads of this process slept.
fn others_sleep() -> io::Result<bool> {
    let own = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    let look = || {
        let mut threads = penstock_confine::threads::of_this_process()?;
        threads.retain(|thread| thread.number != own);
        io::Result::Ok(threads)
    };
    // One look sees the threads one after the other. A thread that sleeps in both looks and has not
    // left its core in between has slept from the first look to the second one.
    let first = look()?;
    Ok(first.iter().all(|thread| thread.sleeps) && first == look()?)
}

/// Copies this process, whose other threads are those of drivers that wait for work. The copy has
/// the calling thread alone, and must give no work to those that it lacks. Returns `None`, without
/// a copy, if one of the other threads does not sleep.
///
/// # Errors
/// The system refuses.
pub(crate) fn fork_beside_sleepers() -> io::Result<Option<Forked>> {
    if !others_sleep()? {
        return Ok(None);
    }
    // SAFETY: the C library makes its own locks free in the copy. All other threads sleep, so none
    // waits for a lock that another one is about to free: each waits on a condition variable, which
    // has freed its lock, until it has work. So the copy finds no lock that nobody would free.
    let child = unsafe { libc::fork() };
    forked(child).map(Some)
}

/// Returns what this answer of `fork` means.
fn forked(child: libc::pid_t) -> io::Result<Forked> {
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(child).map_or(Forked::Child, Forked::Parent))
}

/// Sets variables of this process.
///
/// # Errors
/// The process has more than one thread.
pub(crate) fn set_variables(
    settings: impl Iterator<Item = (&'static str, PathBuf)>,
) -> io::Result<()> {
    only_thread()?;
    for (name, value) in settings {
        // SAFETY: no other thread reads variables, because there is none.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// Returns the group of a process, or `None` if there is no such process. rustix cannot be used:
/// its numbers are never 0, but the kernel reports 0 for a group whose leader is in another
/// namespace.
pub(crate) fn group_of(process: i32) -> Option<u32> {
    // The kernel takes 0 for the caller.
    let process = Some(process).filter(|process| *process > 0)?;
    // SAFETY: it takes and returns plain numbers.
    u32::try_from(unsafe { libc::getpgid(process) }).ok()
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Most memory that it had.
    pub(crate) peak_bytes: u64,
}

/// Waits for the end of a child, and returns how it ended.
pub(crate) fn wait_for(child: Pid) -> io::Result<Exit> {
    let mut status = 0;
    // SAFETY: a usage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let number = child.as_raw_nonzero().get();
    // SAFETY: both pointers are to locals.
    let ended = unsafe { libc::wait4(number, &raw mut status, 0, &raw mut usage) };
    if ended != number {
        return Err(io::Error::last_os_error());
    }
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    // Linux counts in KiB.
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or_default().saturating_mul(1024);
    Ok(Exit { code, signal, peak_bytes })
}

/// Takes leave of a child if it has ended, and returns whether it has.
pub(crate) fn has_ended(child: Pid) -> bool {
    !matches!(rustix::process::waitpid(Some(child), WaitOptions::NOHANG), Ok(None))
}

/// Unblocks all signals: a child inherits its parent's mask, and drivers expect an empty one.
pub(crate) fn unblock_signals() {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: the set is initialised; no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_used_is_own_memory() {
        const BYTES: usize = 64 << 20;
        let used = std::hint::black_box(vec![1_u8; BYTES]);
        // Half of it, because the system may move some of it to the swap at once.
        assert!(own_memory().unwrap() > BYTES as u64 / 2);
        drop(used);
    }
}
