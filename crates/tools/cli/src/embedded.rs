//! Daemons that this command starts for its own use: `penstock serve` as a child process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_process::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::failure::Failure;
use crate::serve::LISTENING;

/// Returns whether the daemon's log goes to standard error. By default it is hidden from a person
/// who runs a program.
pub fn shows_log() -> bool {
    log::is_on(log::Level::Error)
}

/// Time that a daemon has to end its workers before it is killed.
const END_MAX: Duration = Duration::from_secs(2);

/// Longest start of a daemon. It starts a process, binds a socket and starts a first worker: some
/// seconds on a busy machine.
pub const START_MAX: Duration = Duration::from_secs(20);

/// A running daemon. It ends when this value is dropped, or when this process ends.
#[derive(Debug)]
pub struct Embedded {
    child: Child,
    address: String,
}

impl Embedded {
    /// Starts a daemon that listens on `listen`, with `variables` added to its environment, and
    /// waits until it listens. Its log goes to the file `log`, unless [`shows_log`].
    pub fn start(listen: &str, variables: &[(&str, &Path)], log: PathBuf) -> Result<Self, Failure> {
        Self::start_with(&["--listen".into(), listen.into()], variables, log)
    }

    /// Like [`Embedded::start`], with these options for `penstock serve`.
    pub fn start_with(
        options: &[OsString],
        variables: &[(&str, &Path)],
        log: PathBuf,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe().map_err(failure)?);
        command.args(["serve", "--ends-with-parent"]).args(options).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let log = (!shows_log()).then_some(log);
        if let Some(log) = &log {
            command.stderr(File::create(log).map_err(Failure::file(log, "write"))?);
        }
        let child = command.spawn().map_err(failure)?;
        let mut daemon = Self { child, address: String::new() };
        match daemon
            .child
            .stdout
            .take()
            .ok_or_else(|| "it has no output".into())
            .and_then(await_listening)
        {
            Ok(address) => {
                daemon.address = address;
                Ok(daemon)
            }
            Err(reason) => {
                // The daemon ends first, so that its log is complete.
                drop(daemon);
                Err(Failure::Embedded(log.as_deref().and_then(last_line).unwrap_or(reason)))
            }
        }
    }

    /// Address on which the daemon listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Embedded {
    /// Asks the daemon to end, waits, and kills it if it does not.
    fn drop(&mut self) {
        // The child has not been waited for, so its process id cannot belong to another process.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let ended = pid.is_some_and(|pid| {
            _ = kill_process(pid, Signal::TERM);
            pidfd_open(pid, PidfdFlags::empty())
                .is_ok_and(|fd| wait_until_ready(&fd, Some(END_MAX)).unwrap_or(false))
        });
        if !ended {
            _ = self.child.kill();
        }
        _ = self.child.wait();
    }
}

/// Returns the last line of a daemon's log.
pub fn last_line(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    text.lines().last().map(|line| line.trim_start_matches("penstock: ").to_owned())
}

/// Reads the daemon's output until it says where it listens, for at most [`START_MAX`].
pub fn await_listening(mut stdout: ChildStdout) -> Result<String, String> {
    let deadline = Instant::now() + START_MAX;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !wait_until_ready(&stdout, Some(left)).map_err(|error| error.to_string())? {
            return Err(format!("it was not ready within {} s", START_MAX.as_secs()));
        }
        let mut piece = [0; 256];
        let length = stdout.read(&mut piece).map_err(|error| error.to_string())?;
        if length == 0 {
            return Err("it ended at once".into());
        }
        said.extend_from_slice(piece.get(..length).unwrap_or_default());
        let text = String::from_utf8_lossy(&said);
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        if let Some(address) = whole.lines().find_map(|line| line.strip_prefix(LISTENING)) {
            return Ok(address.to_owned());
        }
    }
}

/// Waits until `file` is readable or, if it is a pidfd, until the process has ended. Returns
/// `false` if `patience` ran out first.
pub fn wait_until_ready(file: impl AsFd, patience: Option<Duration>) -> Result<bool, Failure> {
    let deadline = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failure(error.into())),
        }
    }
}

fn failure(error: std::io::Error) -> Failure {
    Failure::Embedded(error.to_string())
}
