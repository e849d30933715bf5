//! A command and what it took: idle power before and after, energy while it runs, its own core-seconds.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::cores::{self, Usage};
use crate::error::Error;
use crate::meter::Meter;
use crate::report::Report;

/// Shells say 128 and the signal's number for a program that a signal ended.
const SIGNALLED: i32 = 128;
/// How often the command is looked at where its end cannot be waited for: little beside what starting a program takes.
const LOOK_MS: libc::c_int = 10;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The program, looked for in `PATH`, and its arguments.
    pub words: Vec<OsString>,
    /// For how long idle power is measured before, and again after. Zero does without.
    pub idle: Duration,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// The figures.
    pub report: Report,
    /// How the command ended.
    pub status: ExitStatus,
}

impl Outcome {
    /// The exit status that hands the command's on: its code, or 128 and the number of the signal that ended it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt as _;
        let code =
            self.status.code().or_else(|| self.status.signal().map(|signal| SIGNALLED + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
    }
}

/// Runs a command to its end and measures. Its streams are this process's own. `SIGTERM` and `SIGHUP` are handed on to it; those of the
/// keyboard, which it gets itself, only make this function skip the idle time after it.
///
/// The signals must be this thread's alone: for a process with one thread, as the command `penstock energy` is.
///
/// # Errors
/// [`Error::Execute`] before anything is measured if there is no such program; those of [`Meter`]; [`Error::Wait`].
pub fn measure(meter: &mut Meter, measured: &Measured) -> Result<Outcome, Error> {
    let (name, arguments) =
        measured.words.split_first().ok_or(Error::Order("there is no command to measure"))?;
    let program = find(name)?;
    if !measured.idle.is_zero() {
        meter.idle(measured.idle)?;
    }
    let signals = Signals::block()?;
    // The sampler starts after that, so that no signal is delivered to it.
    meter.start()?;
    let run = run(&signals, name, &program, arguments);
    let (ended, failure) = match run {
        Ok(ended) => (Some(ended), None),
        Err(failure) => (None, Some(failure)),
    };
    meter.stop_with(ended.as_ref().map(|ended| ended.usage))?;
    drop(signals);
    let ended = match (ended, failure) {
        (Some(ended), _) => ended,
        (None, Some(failure)) => return Err(failure),
        (None, None) => return Err(Error::Order("the command neither ended nor failed")),
    };
    if !measured.idle.is_zero() && !ended.is_interrupted {
        meter.idle(measured.idle)?;
    }
    Ok(Outcome { report: meter.report()?, status: ended.status })
}

struct Ended {
    status: ExitStatus,
    usage: Usage,
    is_interrupted: bool,
}

fn run(
    signals: &Signals,
    name: &OsStr,
    program: &Path,
    arguments: &[OsString],
) -> Result<Ended, Error> {
    let mut command = Command::new(program);
    command.arg0(name).args(arguments);
    let earlier = signals.earlier;
    let unblock = move || {
        // SAFETY: the set is a copy of one that the kernel wrote; the call may be made between fork and exec.
        let code = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const earlier, std::ptr::null_mut())
        };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    };
    // SAFETY: the closure makes one system call that POSIX allows there, and takes neither locks nor memory.
    unsafe { command.pre_exec(unblock) };
    let child = command
        .spawn()
        .map_err(|source| Error::Execute { program: program.to_path_buf(), source })?;
    let pid = libc::pid_t::try_from(child.id())
        .map_err(|_| Error::Wait(io::ErrorKind::InvalidData.into()))?;
    // `child` is not waited for through the standard library, which gives no resource usage.
    signals.wait(pid)
}

/// The program's path: what `execvp` would take, found before seconds of idleness are spent.
fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let given = Path::new(name);
    let missing =
        || Error::Execute { program: given.to_path_buf(), source: io::ErrorKind::NotFound.into() };
    if given.components().count() > 1 || given.is_absolute() {
        return if given.exists() { Ok(given.to_path_buf()) } else { Err(missing()) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(given))
        .find(|path| is_program(path));
    found.ok_or_else(missing)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Signals that are read from a file descriptor instead of being delivered, until this is dropped.
struct Signals {
    file: File,
    earlier: libc::sigset_t,
    earlier_of_children: libc::sighandler_t,
}

const HANDED_ON: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGHUP];
const OF_KEYBOARD: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

impl Signals {
    fn block() -> Result<Self, Error> {
        let (mut set, mut earlier) = (empty_set(), empty_set());
        for signal in HANDED_ON.into_iter().chain(OF_KEYBOARD) {
            // SAFETY: the set is initialised, the signals exist.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is ours; -1 makes a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let file = owned(fd.into()).map_err(Error::Wait)?;
        // SAFETY: both sets are ours.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut earlier) };
        // Where who started this process ignores it, the kernel would forget children that end, and what they used.
        // SAFETY: no handler is set.
        let earlier_of_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(Self { file, earlier, earlier_of_children })
    }

    /// Waits for the process to end. It may take any time: it is the user's command, and the user can end it.
    fn wait(&self, pid: libc::pid_t) -> Result<Ended, Error> {
        // SAFETY: numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // Without it (no descriptor left, an old kernel) the process is looked at from time to time: it runs, and must not be left alone.
        let process = owned(fd).ok();
        let timeout_ms = if process.is_some() { -1 } else { LOOK_MS };
        let mut is_interrupted = false;
        loop {
            let place = |file: Option<&File>| libc::pollfd {
                // A negative one is passed over.
                fd: file.map_or(-1, |file| file.as_raw_fd()),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut places = [place(process.as_ref()), place(Some(&self.file))];
            // SAFETY: two places of ours. Either the end of the process or a signal wakes this.
            unsafe { libc::poll(places.as_mut_ptr(), 2, timeout_ms) };
            if let Some((status, usage)) = ended(pid)? {
                return Ok(Ended { status, usage, is_interrupted });
            }
            while let Some((signal, code)) = self.next() {
                is_interrupted |= OF_KEYBOARD.contains(&signal);
                // The terminal sends its signals to the command too.
                if !OF_KEYBOARD.contains(&signal) || code != libc::SI_KERNEL {
                    // SAFETY: the process was not waited for yet, so the number is still its own.
                    unsafe { libc::kill(pid, signal) };
                }
            }
        }
    }

    /// The next signal that has come, and where it is from.
    fn next(&self) -> Option<(libc::c_int, libc::c_int)> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.file).read_exact(&mut record).ok()?;
        // The number is the first field, its origin the third.
        let [signal, _, code] = [0, 4, 8].map(|at| {
            let bytes = record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            i32::from_ne_bytes(bytes.unwrap_or_default())
        });
        Some((signal, code))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came at the very end was meant for the command, which has gone.
        while self.next().is_some() {}
        // SAFETY: it is what was there before.
        unsafe { libc::signal(libc::SIGCHLD, self.earlier_of_children) };
        // SAFETY: the set is what was there before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.earlier, std::ptr::null_mut())
        };
    }
}

/// What a system call made, if it did not fail.
fn owned(fd: libc::c_long) -> io::Result<File> {
    let fd = libc::c_int::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a set of signals is numbers only; sigemptyset gives it its value.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: the place is ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

/// Status and use of core time, with all threads and all descendants that were waited for, if the process has ended.
fn ended(pid: libc::pid_t) -> Result<Option<(ExitStatus, Usage)>, Error> {
    use std::os::unix::process::ExitStatusExt as _;
    let (mut status, mut record) = (0, cores::empty_record());
    // SAFETY: both places are ours; the process is our child.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut record) } {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(Error::Wait(error)),
        },
        _ => Ok(Some((ExitStatus::from_raw(status), Usage::of_record(&record)))),
    }
}
