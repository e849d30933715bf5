//! Signals that a parent has left in a state in which a command or daemon of Penstock cannot work,
//! or that would end it where an error does better.
//!
//! A command that runs the program of a user as its child reads its own signals ([`Held`]) and
//! passes them on, so that it ends after the program.
//!
//! Libraries leave all signals alone: those belong to the program.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stands for what a signal was before if [`prepare`] was not called.
const UNKNOWN: libc::sighandler_t = libc::SIG_ERR;

/// A signal, what a command wants of it, and what it was before.
struct Wish {
    signal: libc::c_int,
    wanted: libc::sighandler_t,
    earlier: AtomicUsize,
}

static WISHES: [Wish; 2] = [
    // A parent that ignores it passes that on by `exec`. The kernel then forgets each child that
    // ends, and nobody can wait for it: "No child processes" (waitpid(2)).
    Wish { signal: libc::SIGCHLD, wanted: libc::SIG_DFL, earlier: AtomicUsize::new(UNKNOWN) },
    // It ends a process that writes beyond `ulimit -f`. Without it the write fails, and the daemon
    // of many programs does not end because its log is full.
    Wish { signal: libc::SIGXFSZ, wanted: libc::SIG_IGN, earlier: AtomicUsize::new(UNKNOWN) },
];

/// Makes this process hear of its children and survive a limit of file sizes. For a `main`, before
/// it starts a process or thread.
pub fn prepare() {
    for Wish { signal, wanted, earlier } in &WISHES {
        // SAFETY: this sets no handler, and no other thread runs.
        earlier.store(unsafe { libc::signal(*signal, *wanted) }, Ordering::Relaxed);
    }
}

/// Undoes [`prepare`], for the program that takes the place of this process.
pub fn as_before() {
    for Wish { signal, earlier, .. } in &WISHES {
        let earlier = earlier.load(Ordering::Relaxed);
        if earlier != UNKNOWN {
            // SAFETY: a new process has no handlers, so this sets none.
            unsafe { libc::signal(*signal, earlier) };
        }
    }
}

/// Has the program of a user begin with the signals as they were before [`prepare`].
pub fn hand_on(command: &mut Command) -> &mut Command {
    let undo = || {
        as_before();
        Ok(())
    };
    // SAFETY: the closure only loads numbers and calls `signal`, which POSIX allows here.
    unsafe { command.pre_exec(undo) }
}

/// Signals that [`Held::pass_on`] always passes on.
const HANDED_ON: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGHUP];
/// Signals of the keyboard, which a terminal sends to the child, too.
const OF_KEYBOARD: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// `SIGTERM`, `SIGHUP`, `SIGINT` and `SIGQUIT`, which are read from a file descriptor, and not
/// delivered, until this is dropped.
#[derive(Debug)]
pub struct Held {
    file: File,
    earlier: libc::sigset_t,
}

impl Held {
    /// Holds the signals. This thread must be the only one that they can be delivered to, as in a
    /// process with one thread.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn hold() -> io::Result<Self> {
        let (mut set, mut earlier) = (empty_set(), empty_set());
        for signal in HANDED_ON.into_iter().chain(OF_KEYBOARD) {
            // SAFETY: the set is initialised, and the signals exist.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is ours, and -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: both sets are ours.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut earlier) };
        Ok(Self { file, earlier })
    }

    /// Has the program begin with the signals as they were before, also those of [`prepare`].
    pub fn hand_on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let earlier = self.earlier;
        let unblock = move || {
            // SAFETY: the set is a copy of the kernel's, and the call is allowed between fork and
            // exec.
            let code = unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const earlier, std::ptr::null_mut())
            };
            if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
        };
        // SAFETY: the closure makes one system call that POSIX allows here, and does not allocate.
        hand_on(unsafe { command.pre_exec(unblock) })
    }

    /// Sends the signals that have arrived to a child that has not been waited for. Those of the
    /// keyboard have gone to the child already. Returns whether one of the keyboard has arrived.
    pub fn pass_on(&self, child: u32) -> bool {
        let mut is_interrupted = false;
        while let Some((signal, code)) = self.next() {
            let is_of_keyboard = OF_KEYBOARD.contains(&signal);
            is_interrupted |= is_of_keyboard;
            if let Some(pid) = libc::pid_t::try_from(child).ok().filter(|pid| *pid > 0)
                && (!is_of_keyboard || code != libc::SI_KERNEL)
            {
                // SAFETY: the child was not waited for yet, so it still has this number.
                unsafe { libc::kill(pid, signal) };
            }
        }
        is_interrupted
    }

    /// Returns the number of a signal that has arrived, if one has.
    pub fn take(&self) -> Option<i32> {
        self.next().map(|(signal, _)| signal)
    }

    /// Returns the number and the origin of the next signal, if one has arrived.
    fn next(&self) -> Option<(libc::c_int, libc::c_int)> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.file).read_exact(&mut record).ok()?;
        // The number is the first field, and the origin is the third.
        let [signal, _, code] = [0, 4, 8].map(|at| {
            let bytes = record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            i32::from_ne_bytes(bytes.unwrap_or_default())
        });
        Some((signal, code))
    }
}

impl AsFd for Held {
    /// Readable when a signal has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Signals that arrived at the very end were meant for the child, which has ended.
        while self.next().is_some() {}
        // SAFETY: this restores the earlier set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.earlier, std::ptr::null_mut())
        };
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a set of signals consists of numbers, and `sigemptyset` initialises it.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}
