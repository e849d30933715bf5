//! Measures a command: its energy and core-seconds, and idle power before and after it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use penstock_process::search;
use penstock_process::signals::Held;

use crate::cores::{self, Usage};
use crate::error::Error;
use crate::meter::Meter;
use crate::report::Report;

/// Shells report 128 plus the signal's number for a program that a signal ended.
const SIGNALLED: i32 = 128;
/// Polling interval if the command's end cannot be waited for: short beside a program's start.
const LOOK_MS: libc::c_int = 10;
/// Longest wait for processes that the command has left behind.
const LEFT_MAX: Duration = Duration::from_secs(10);

/// Description of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The program, which is looked up in `PATH`, and its arguments.
    pub words: Vec<OsString>,
    /// How long idle power is measured before the command, and again after it. Zero skips both.
    pub idle: Duration,
    /// Which processes that the command leaves behind belong to it, by their numbers: they are
    /// about to end, and their core time counts. A process that asks for this must have no other
    /// children, because it also waits for all others that have ended.
    pub belongs: Option<fn(u32) -> bool>,
}

/// Result of a measurement.
#[derive(Debug)]
pub struct Outcome {
    pub report: Report,
    pub status: ExitStatus,
}

impl Outcome {
    /// Returns the exit status that passes on the command's: its code, or 128 plus the number of
    /// the signal that ended it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt as _;
        let code =
            self.status.code().or_else(|| self.status.signal().map(|signal| SIGNALLED + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
    }
}

/// Runs a command to its end and measures it. The command uses this process's standard streams.
/// `SIGTERM` and `SIGHUP` are forwarded to it. It gets the signals of the keyboard itself; they
/// only make this function skip the idle time after the command.
///
/// This thread must be the only one that these signals can be delivered to. This is so in a process
/// with one thread, such as the command `penstock energy`.
///
/// # Errors
/// [`Error::Execute`] if there is no such program, before anything is measured; the errors of
/// [`Meter`]; [`Error::Wait`].
pub fn measure(meter: &mut Meter, measured: &Measured) -> Result<Outcome, Error> {
    let (name, arguments) =
        measured.words.split_first().ok_or(Error::Order("there is no command to measure"))?;
    let program = find(name)?;
    if !measured.idle.is_zero() {
        meter.idle(measured.idle)?;
    }
    let signals = Signals::hold()?;
    let adoption = measured.belongs.map(Adoption::begin);
    // The sampler starts after the signals are held, so that none is delivered to it.
    meter.start()?;
    let mut run = run(&signals, name, &program, arguments);
    if let (Ok(ended), Some(adoption)) = (&mut run, &adoption) {
        adoption.await_all(&mut ended.usage);
    }
    drop(adoption);
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
    signals.held.hand_on(&mut command);
    let child = command
        .spawn()
        .map_err(|source| Error::Execute { program: program.to_path_buf(), source })?;
    let pid = libc::pid_t::try_from(child.id())
        .map_err(|_| Error::Wait(io::ErrorKind::InvalidData.into()))?;
    // `child` is not waited for through the standard library, which does not return resource usage.
    signals.wait(pid)
}

/// Returns the path that `execvp` would use. Called before time is spent on idle power.
fn find(name: &OsStr) -> Result<PathBuf, Error> {
    search::program(name).filter(|path| path.exists()).ok_or_else(|| Error::Execute {
        program: PathBuf::from(name),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// The signals of this process, and what it wants to know of its children, until this is dropped.
struct Signals {
    held: Held,
    earlier_of_children: libc::sighandler_t,
}

impl Signals {
    fn hold() -> Result<Self, Error> {
        let held = Held::hold().map_err(Error::Wait)?;
        // A parent that ignores `SIGCHLD` passes that on. The kernel would then discard the status
        // and the resource usage of this process's children.
        // SAFETY: no handler is set.
        let earlier_of_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(Self { held, earlier_of_children })
    }

    /// Waits without a limit until the process ends: it is the user's command.
    fn wait(&self, pid: libc::pid_t) -> Result<Ended, Error> {
        // SAFETY: the arguments are numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // Without the descriptor (none is left, or the kernel is old) the process is polled. It
        // already runs and must not be abandoned.
        let process = owned(fd).ok();
        let timeout_ms = if process.is_some() { -1 } else { LOOK_MS };
        let mut is_interrupted = false;
        loop {
            let place = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // `poll` ignores negative descriptors.
            let process = process.as_ref().map_or(-1, File::as_raw_fd);
            let mut places = [place(process), place(self.held.as_fd().as_raw_fd())];
            // SAFETY: both entries are ours. The end of the process or a signal ends the wait.
            unsafe { libc::poll(places.as_mut_ptr(), 2, timeout_ms) };
            if let Some((status, usage)) = ended(pid)? {
                return Ok(Ended { status, usage, is_interrupted });
            }
            // The process was not waited for yet.
            is_interrupted |= self.held.pass_on(pid.unsigned_abs());
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: this restores the earlier disposition.
        unsafe { libc::signal(libc::SIGCHLD, self.earlier_of_children) };
    }
}

/// Orphans become children of this process, and not of the first process of the host, until this is
/// dropped. So the kernel tells what their descendants took.
struct Adoption {
    belongs: fn(u32) -> bool,
}

impl Adoption {
    fn begin(belongs: fn(u32) -> bool) -> Self {
        Self::adopt(true);
        Self { belongs }
    }

    fn adopt(on: bool) {
        // SAFETY: the arguments are numbers. An old kernel refuses, and then no orphan comes.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(on), 0, 0, 0) };
    }

    /// Waits for the orphans that belong to the command, and adds the time of all that have ended.
    fn await_all(&self, usage: &mut Usage) {
        let deadline = Instant::now() + LEFT_MAX;
        loop {
            // Looked for first: one that ends after that is waited for below, and leaves the loop.
            let is_awaited = children().into_iter().any(self.belongs);
            while let Ok(Some((_, one))) = ended(-1) {
                usage.user += one.user;
                usage.system += one.system;
            }
            if !is_awaited || Instant::now() >= deadline {
                return;
            }
            // SAFETY: there are no entries, so this only waits.
            unsafe { libc::poll(std::ptr::null_mut(), 0, LOOK_MS) };
        }
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        Self::adopt(false);
    }
}

/// Returns the numbers of this process's children, as far as the kernel tells (proc(5):
/// `CONFIG_PROC_CHILDREN`).
fn children() -> Vec<u32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let lists = lists.map(Result::unwrap_or_default);
    lists
        .flat_map(|list| list.split(' ').map_while(|it| it.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Takes ownership of a descriptor that a system call returned, or returns the call's error.
fn owned(fd: libc::c_long) -> io::Result<File> {
    let fd = libc::c_int::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Returns the status and the core time of the process, or of any child with -1, if it has ended.
/// The time includes all its threads, and its descendants that were waited for.
fn ended(pid: libc::pid_t) -> Result<Option<(ExitStatus, Usage)>, Error> {
    use std::os::unix::process::ExitStatusExt as _;
    let (mut status, mut record) = (0, cores::empty_record());
    // SAFETY: both variables are ours, and the process is our child.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut record) } {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(Error::Wait(error)),
        },
        _ => Ok(Some((ExitStatus::from_raw(status), Usage::of_record(&record)))),
    }
}
