//! The guard of a program that `penstock run` became: it runs the daemon for the local devices, waits for the program to
//! end, ends the daemon and removes the private directory.
//!
//! It is no child of the program (which may wait for all of its children and must not meet one that it does not know),
//! has its own session (what is typed at the terminal is for the program alone) and holds none of its files.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::private::PrivateDirectory;
use crate::args::GuardArgs;
use crate::embedded::{Embedded, LOG_VARIABLE, wait_until_ready};
use crate::failure::Failure;

/// What the guard says when all is ready.
const READY: &str = "ready";

/// The socket of the daemon in the private directory.
const SOCKET_NAME: &str = "node.sock";

/// Starts the guard of this process, and gives the socket of the daemon that it runs if `serve`.
pub fn start(directory: &PrivateDirectory, serve: bool) -> Result<Option<PathBuf>, Failure> {
    let mut command =
        guard_command(&std::process::id().to_string(), directory.path(), serve).map_err(failure)?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failure)?;
    let mut answer = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut answer).map_err(failure)?;
    }
    // The first process only starts the one that stays.
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

/// `penstock guard`.
pub fn guard(args: &GuardArgs) -> Result<ExitCode, Failure> {
    if !args.here {
        let mut command =
            guard_command(&args.pid.to_string(), &args.directory, args.serve).map_err(failure)?;
        command.arg("--here").spawn().map_err(failure)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Fails only for the leader of a group, which this is not: another process has just started it.
    _ = rustix::process::setsid();
    let directory = PrivateDirectory::hold(args.directory.clone())?;
    let watched = watch(&directory, args);
    directory.remove();
    if let Err(failure) = watched {
        // Read by `start`, if it happened before all was ready.
        println!("{}", plain(failure));
    }
    Ok(ExitCode::SUCCESS)
}

fn watch(directory: &PrivateDirectory, args: &GuardArgs) -> Result<(), Failure> {
    let pid = Pid::from_raw(args.pid)
        .ok_or_else(|| Failure::Embedded("there is no program to stay with".into()))?;
    let program = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failure(error.into()))?;
    let _daemon = args.serve.then(|| start_daemon(directory)).transpose()?;
    println!("{READY}");
    let_go_of_the_program()?;
    wait_until_ready(&program, None).map(drop)
}

fn start_daemon(directory: &PrivateDirectory) -> Result<Embedded, Failure> {
    let listen = format!("unix:{}", directory.path().join(SOCKET_NAME).display());
    Embedded::start(&listen, &[], directory.path().join("daemon.log"))
}

/// Whoever reads the program's output must not wait for the guard. Standard error stays only where a log goes to it.
fn let_go_of_the_program() -> Result<(), Failure> {
    let null =
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failure)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failure(error.into()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failure(error.into()))?;
    if std::env::var_os(LOG_VARIABLE).is_none() {
        rustix::stdio::dup2_stderr(&null).map_err(|error| failure(error.into()))?;
    }
    // A file system that the program was started from can be unmounted.
    std::env::set_current_dir("/").map_err(failure)
}

/// Without what [`Failure::Embedded`] says around the reason: `start` says it again.
fn plain(failure: Failure) -> String {
    match failure {
        Failure::Embedded(reason) => reason,
        other => other.to_string(),
    }
}

fn failure(error: std::io::Error) -> Failure {
    Failure::Embedded(error.to_string())
}
