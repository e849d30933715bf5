//! Threads inside other people's programs.

use std::io;
use std::marker::PhantomData;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_process::Lock;

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
    let thread = penstock_process::start_with_stack(name, stack_bytes, || {
        let _own = OwnThread::begin();
        work()
    });
    restore_signals(&before);
    thread
}

/// Counts the core time of one thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    #[must_use]
    pub fn of_this_thread() -> Self {
        let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: the thread lives, because it is the one that calls, and `clock` is ours. The call
        // fails only for threads that have ended.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        Self(clock)
    }

    /// Returns the core time of the thread since it began. Call it while the thread lives: another
    /// one may get its number.
    #[must_use]
    pub fn time(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is ours, and the system refuses a clock that does not exist.
        unsafe { libc::clock_gettime(self.0, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

/// Counts the core time of the thread that made it as Penstock's own, until it is dropped. In a
/// worker, other threads belong to drivers, or were made by kernels.
#[derive(Debug)]
pub struct OwnThread {
    clock: ThreadClock,
    /// The time is read when the thread drops it, so it stays in the thread.
    _stays: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct OwnThreads {
    clocks: Vec<ThreadClock>,
    /// Time of those that have ended.
    ended: Duration,
}

static OWN: Lock<OwnThreads> = Lock::new(OwnThreads { clocks: Vec::new(), ended: Duration::ZERO });

impl OwnThreads {
    fn end(&mut self, ending: ThreadClock) {
        self.clocks.retain(|clock| *clock != ending);
        self.ended += ending.time();
    }

    fn time(&self) -> Duration {
        self.clocks.iter().map(|clock| clock.time()).sum::<Duration>() + self.ended
    }
}

impl OwnThread {
    /// Begins in the calling thread. Call it once in each thread.
    #[must_use]
    pub fn begin() -> Self {
        let clock = ThreadClock::of_this_thread();
        OWN.lock().clocks.push(clock);
        Self { clock, _stays: PhantomData }
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        OWN.lock().end(self.clock);
    }
}

/// Returns the core time of this process's own threads, see [`OwnThread`].
pub fn own_time() -> Duration {
    OWN.lock().time()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for this long on the calling thread.
    fn compute(time: Duration) {
        let clock = ThreadClock::of_this_thread();
        let end = clock.time() + time;
        while clock.time() < end {}
    }

    #[test]
    fn quiet_threads_are_own_threads() {
        let (time, before) = (Duration::from_millis(20), own_time());
        let thread = spawn_quiet("own", HELPER_STACK_BYTES, move || compute(time));
        thread.unwrap().join().unwrap();
        assert!(own_time() >= before + time);
    }

    #[test]
    fn only_own_threads_count_and_each_only_until_it_ends() {
        let (mut own, time) = (OwnThreads::default(), Duration::from_millis(200));
        let this = ThreadClock::of_this_thread();
        compute(time);
        assert_eq!(own.time(), Duration::ZERO);
        own.clocks.push(this);
        assert!(own.time() >= time);
        let before = own.time();
        // Another thread, which is none of its own.
        std::thread::spawn(move || compute(time)).join().unwrap();
        assert!(own.time() < before + time);
        own.end(this);
        let ended = own.time();
        assert!(ended >= before && own.clocks.is_empty());
        compute(time);
        assert_eq!(own.time(), ended);
    }
}
