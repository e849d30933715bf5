//! The end of a process that Penstock's libraries are part of.

use std::io::{self, Write};
use std::ptr::null_mut;

/// Has `run` called when the process calls `exit` or returns from `main`, and when a library that
/// may be unloaded is. A process that a signal or `_exit` ends calls nothing.
///
/// Handlers run in the reverse order of their registration, so a library may be unusable in `run`
/// if it was loaded later than this call. Other threads still run. Returns `false` if the system
/// refuses.
pub fn at_exit(run: extern "C" fn()) -> bool {
    // SAFETY: the linker binds the handler to the library that contains `run`, so that the handler
    // runs before its code is gone.
    unsafe { libc::atexit(run) == 0 }
}

/// Writes all bytes. A closed pipe and a limit of file sizes are errors here, and no signal ends
/// the process.
///
/// # Errors
/// Those of the file.
pub fn write_without_signal(file: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let _held = Held::hold();
    file.write_all(bytes)
}

/// Holds back the signals of failed writes in this thread.
struct Held {
    /// Those that waited for nobody before.
    signals: libc::sigset_t,
    before: libc::sigset_t,
}

impl Held {
    fn hold() -> Self {
        let (mut signals, mut pending) = (empty(), empty());
        // SAFETY: the set is initialised.
        unsafe { libc::sigpending(&raw mut pending) };
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            // SAFETY: the set is initialised, and the signal exists.
            if unsafe { libc::sigismember(&raw const pending, signal) } == 0 {
                // SAFETY: as above.
                unsafe { libc::sigaddset(&raw mut signals, signal) };
            }
        }
        let mut before = empty();
        // SAFETY: both sets are initialised. The mask is that of this thread alone.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before);
        }
        Self { signals, before }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: takes the signals of the failed writes, without waiting. Both pointers are those
        // of local values.
        while unsafe { libc::sigtimedwait(&raw const self.signals, null_mut(), &raw const now) } > 0
        {
        }
        // SAFETY: the set is the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}

fn empty() -> libc::sigset_t {
    // SAFETY: a set of signals is an array of numbers, to which all bits may be 0. On Linux that is
    // the empty set.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, pipe};

    use super::*;

    #[test]
    fn a_closed_pipe_is_an_error_and_no_signal() {
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        for _ in 0..2 {
            let failed = write_without_signal(&mut writer, b"text").unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::BrokenPipe);
        }
        // The signal neither waits nor stays blocked.
        let mut now = empty();
        // SAFETY: the set is a local value.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, null_mut(), &raw mut now) };
        // SAFETY: the set is initialised, and the signal exists.
        assert_eq!(unsafe { libc::sigismember(&raw const now, libc::SIGPIPE) }, 0);
    }
}
