//! The guard of a program that `penstock run` became. It runs the daemon for the local devices,
//! waits for the program to end, ends the daemon and removes the private directory.
//!
//! The guard is not a child of the program, because a program may wait for all its children and
//! must not meet an unknown one. It has its own session, so that terminal input and signals reach
//! only the program, and it holds none of the program's files.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use penstock_daemon::Level;
use penstock_process::variable;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::private::{PrivateDirectory, SOCKET_NAME, can_be_filled};
use crate::args::GuardArgs;
use crate::embedded::{Embedded, shows_log, wait_until_ready};
use crate::failure::Failure;

/// What the guard has in place of the program's files.
const NULL: &str = "/dev/null";

/// Line that the guard prints when everything is ready.
const READY: &str = "ready";

/// Lowest number of a descriptor that is not standard input, output or error.
const BEHIND_STANDARD_FILES: i32 = 3;

/// Returns whether this process is the guard of a program. It ends soon after the program. A guard
/// that is ending has its name, but no words any more, and cannot be waited for yet.
pub fn is_guard(pid: u32) -> bool {
    let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = read("cmdline");
    if line.is_empty() {
        return read("comm") == b"penstock\n";
    }
    let mut words = line.split(|byte| *byte == 0);
    let is_ours = words.next().is_some_and(|program| program.ends_with(b"penstock"));
    is_ours && words.next() == Some(b"guard")
}

/// Starts the guard of this process. If `serve` is set, the guard also runs a daemon, and the
/// function returns the daemon's socket.
pub fn start(directory: &PrivateDirectory, serve: bool) -> Result<Option<PathBuf>, Failure> {
    let mut command =
        guard_command(&std::process::id().to_string(), directory.path(), serve).map_err(failure)?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failure)?;
    let mut answer = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut answer).map_err(failure)?;
    }
    // This child only starts the process that stays, and ends.
    child.wait().map_err(failure)?;
    match answer.trim_end() {
        READY => Ok(serve.then(|| directory.path().join(SOCKET_NAME))),
        "" => Err(Failure::Embedded("its guard ended at once".into())),
        reason => Err(Failure::Embedded(reason.to_owned())),
    }
}

fn guard_command(pid: &str, directory: &Path, serve: bool) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["guard", "--pid", pid, "--directory"]).arg(directory);
    if serve {
        command.arg("--serve");
    }
    Ok(command)
}

pub fn guard(args: &GuardArgs) -> Result<ExitCode, Failure> {
    if !args.here {
        let mut command =
            guard_command(&args.pid.to_string(), &args.directory, args.serve).map_err(failure)?;
        command.arg("--here").spawn().map_err(failure)?;
        return Ok(ExitCode::SUCCESS);
    }
    // `setsid` fails only in the leader of a process group. Another process has just started this
    // one, so it leads no group.
    _ = rustix::process::setsid();
    let answer = answer().map_err(failure)?;
    let directory = PrivateDirectory::hold(args.directory.clone())?;
    let failed = match prepare(&directory, args) {
        Ok(watch) => {
            watch.tell_and_wait(answer);
            None
        }
        Err(failure) => Some((failure, answer)),
    };
    penstock_link::end_shared_ssh(directory.path());
    directory.keep_log(args.pid);
    directory.remove();
    if let Some((failure, mut answer)) = failed {
        // Nobody is left to tell if `start` does not read.
        _ = writeln!(answer, "{}", plain(failure));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the pipe to [`start`], which outlasts the standard output of this process.
fn answer() -> std::io::Result<File> {
    Ok(File::from(fcntl_dupfd_cloexec(std::io::stdout(), BEHIND_STANDARD_FILES)?))
}

/// What the guard has when everything that can fail is done.
struct Watch {
    program: OwnedFd,
    _daemon: Option<Embedded>,
}

impl Watch {
    /// Tells [`start`] that everything is ready, and waits for the end of the program.
    fn tell_and_wait(self, mut answer: File) {
        // Without a reader there is no program either.
        if writeln!(answer, "{READY}").is_ok() {
            drop(answer);
            _ = wait_until_ready(&self.program, None);
        }
    }
}

fn prepare(directory: &PrivateDirectory, args: &GuardArgs) -> Result<Watch, Failure> {
    let pid = Pid::from_raw(args.pid)
        .ok_or_else(|| Failure::Embedded("there is no program to watch".into()))?;
    let program = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failure(error.into()))?;
    let daemon = args.serve.then(|| start_own(directory)).transpose()?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open(NULL)
        .map_err(Failure::file(NULL.as_ref(), "open"))?;
    // So that the file system with the current directory can be unmounted.
    std::env::set_current_dir("/").map_err(failure)?;
    let_go_of_the_program(&null)?;
    Ok(Watch { program, _daemon: daemon })
}

fn start_own(directory: &PrivateDirectory) -> Result<Embedded, Failure> {
    let listen = format!("unix:{}", directory.path().join(SOCKET_NAME).display());
    let mut options: Vec<OsString> = vec!["--listen".into(), listen.into()];
    // Only the user's own program uses this daemon, and its kernels may do what the program may:
    // include the user's headers, and use the cache of compiled kernels that the user has anyway.
    if variable::CONFINE.value().is_none() {
        options.extend(["--confine".into(), Level::Off.to_string().into()]);
    }
    start_daemon(directory, &options, &[], directory.log())
}

/// Starts a daemon that may use the directory, with these options and variables.
pub fn start_daemon(
    directory: &PrivateDirectory,
    options: &[OsString],
    variables: &[(&str, &Path)],
    log: PathBuf,
) -> Result<Embedded, Failure> {
    // PoCL has no device if it cannot make its cache.
    let cache = (!has_cache()).then(|| directory.path().join("cache"));
    let cache = cache.iter().map(|it| (variable::CACHE_HOME.name, &**it));
    let variables: Vec<_> = variables.iter().copied().chain(cache).collect();
    Embedded::start_with(options, &variables, log)
}

/// Returns whether drivers can make their caches where the user has such files. A home may belong
/// to another user, as under `sudo -u`, be read-only, or not exist.
fn has_cache() -> bool {
    let home = variable::HOME.path().map(|home| home.join(".cache"));
    let Some(folder) = variable::CACHE_HOME.path().or(home) else { return false };
    std::fs::create_dir_all(&folder).is_ok() && can_be_filled(&folder)
}

/// Closes the program's files: a reader of the program's output must not wait for the guard.
/// Standard error stays open only if a log goes to it.
fn let_go_of_the_program(null: &File) -> Result<(), Failure> {
    rustix::stdio::dup2_stdin(null).map_err(|error| failure(error.into()))?;
    rustix::stdio::dup2_stdout(null).map_err(|error| failure(error.into()))?;
    if !shows_log() {
        rustix::stdio::dup2_stderr(null).map_err(|error| failure(error.into()))?;
    }
    Ok(())
}

/// Returns the reason without the text that [`Failure::Embedded`] adds: `start` adds it again.
fn plain(failure: Failure) -> String {
    match failure {
        Failure::Embedded(reason) => reason,
        other => other.to_string(),
    }
}

fn failure(error: std::io::Error) -> Failure {
    Failure::Embedded(error.to_string())
}
