//! Signals that a parent has left in a state in which a command or daemon of Penstock cannot work,
//! or that would end it where an error does better.
//!
//! Libraries leave all signals alone: those belong to the program.

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
