//! Processes that end with this one.
//!
//! Whatever ends this process, also `kill -9`, the kernel then kills the others: each asks for that
//! (`PR_SET_PDEATHSIG`) before it becomes the program. No process of ours has to survive to watch
//! them. The kernel tells this by the thread that started a process, so only the main thread starts
//! processes here.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getppid, pidfd_open,
    set_parent_process_death_signal, setrlimit,
};

use super::Tools;
use crate::error::VmError;

/// First argument of the command `penstock` when it becomes a bound process. The id of the process
/// to which its life is bound and the program follow.
pub const WORD: &str = "bound";

/// Exit status if the program could not be started.
const NOT_STARTED: u8 = 127;

/// Returns the command that starts `program` so that it ends with this process.
pub fn command(tools: &Tools, program: &Path) -> Command {
    let mut command = Command::new(&tools.penstock);
    command.arg(WORD).arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes the program of [`command`]. Returns only if that fails.
pub fn become_program(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let parent = arguments.next().and_then(|it| it.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let Some(program) = arguments.next() else { return NOT_STARTED };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("penstock: a process cannot be bound to its parent: {error}");
        return NOT_STARTED;
    }
    // The parent may have ended before the kernel was asked.
    if getppid() != parent {
        return NOT_STARTED;
    }
    // QEMU aborts if the processor lacks what it wants of KVM. That is no reason for a large file.
    _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("penstock: {}: {error}", program.display());
    NOT_STARTED
}

/// A process that ends with this one, or when this value is dropped.
#[derive(Debug)]
pub struct Bound {
    child: Child,
}

/// What happened first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    Ready,
    /// The process ended.
    Ended,
    /// The time is over.
    Late,
}

impl Bound {
    /// Starts a command of [`command`], which the error calls `what`.
    pub fn start(mut command: Command, what: &str) -> Result<Self, VmError> {
        let failed =
            |error: io::Error| VmError::Process { what: what.into(), how: error.to_string() };
        Ok(Self { child: command.spawn().map_err(failed)? })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until `file` is readable.
    pub fn wait_for(&self, file: &impl AsFd, patience: Duration) -> io::Result<Waited> {
        // The child has not been waited for, so its process id cannot belong to another process.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let mut list = [PollFd::new(file, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
            match poll(&mut list, left.as_ref()) {
                Ok(0) => return Ok(Waited::Late),
                Ok(_) if list[0].revents().is_empty() => return Ok(Waited::Ended),
                Ok(_) => return Ok(Waited::Ready),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Ends the process. Returns how it had ended if it had done so by itself.
    pub fn end(&mut self) -> Option<String> {
        let by_itself = self.child.try_wait().ok().flatten();
        _ = self.child.kill();
        _ = self.child.wait();
        by_itself.map(|status| status.to_string())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.end();
    }
}
