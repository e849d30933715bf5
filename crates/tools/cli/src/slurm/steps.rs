//! The steps of a job that keep a daemon on each node: one `srun` for each component of the job.
//!
//! The key goes to all nodes through the standard input of `srun`, and the end of this input ends
//! the daemons. So they end with this process, whatever ends it.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_link::Key;
use penstock_process::signals::Held;
use penstock_process::variable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::error::SlurmError;
use super::job::{Component, DEVICES_OF_A_NODE, Job, NOT_FOR_SRUN};
use super::muster::Muster;
use crate::embedded::wait_until_ready;
use crate::failure::Failure;

/// Longest time until all daemons of a job listen. Slurm starts a step in a second, or in some
/// seconds on a thousand nodes, and a daemon takes up to 20 s on a busy node.
const READY_MAX: Duration = Duration::from_secs(60);

/// Longest time until the daemons have ended by themselves. Each gives its workers 2 s. `srun` also
/// waits for nodes that have failed, until Slurm has noticed that.
const END_MAX: Duration = Duration::from_secs(10);

/// Longest time that `srun` has to cancel its step.
const CANCEL_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    srun: Child,
    answers: ChildStdout,
}

impl Steps {
    /// Has Slurm start a daemon on each node, with a new key. `directory` is the name of their
    /// directory.
    pub fn start(job: &Job, directory: &str, held: &Held) -> Result<Self, Failure> {
        let key = Key::random()?;
        let mut steps = Self(Vec::new());
        for component in &job.components {
            let mut command = step(job, component, directory).map_err(SlurmError::Process)?;
            held.hand_on(&mut command);
            let mut srun = command.spawn().map_err(SlurmError::Srun)?;
            let pipes = srun.stdin.as_mut().zip(srun.stdout.take());
            let Some((input, answers)) = pipes else { continue };
            // The pipe has room for it. If `srun` has ended, its answers say so.
            _ = input.write_all(key.as_bytes());
            steps.0.push(Step { srun, answers });
        }
        Ok(steps)
    }

    /// Waits until all daemons listen.
    pub fn muster(&mut self, job: &Job, held: &Held) -> Result<Muster, SlurmError> {
        let mut muster = Muster::new(job);
        let deadline = Instant::now() + READY_MAX;
        while !muster.missing().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = self.wait(held, left).map_err(SlurmError::Process)?;
            if let Some(signal) = held.take() {
                return Err(SlurmError::Signal(signal));
            }
            if left.is_zero() {
                let nodes = muster.missing().join(", ");
                return Err(SlurmError::Late { nodes, seconds: READY_MAX.as_secs() });
            }
            for place in ready {
                let Some(step) = self.0.get_mut(place) else { continue };
                let mut piece = [0; 1 << 10];
                match step.answers.read(&mut piece).map_err(SlurmError::Process)? {
                    0 => {
                        let how = step.srun.wait().map_err(SlurmError::Process)?;
                        return Err(SlurmError::Ended { how });
                    }
                    length => muster.hear(place, piece.get(..length).unwrap_or_default())?,
                }
            }
        }
        Ok(muster)
    }

    /// Waits for an answer or a signal. Returns the places of the steps that have answers.
    fn wait(&self, held: &Held, left: Duration) -> io::Result<Vec<usize>> {
        let mut files: Vec<_> =
            self.0.iter().map(|step| PollFd::new(&step.answers, PollFlags::IN)).collect();
        files.push(PollFd::new(held, PollFlags::IN));
        let left = Timespec::try_from(left).ok();
        match poll(&mut files, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let files = files.iter().take(self.0.len()).enumerate();
        Ok(files.filter(|(_, it)| !it.revents().is_empty()).map(|(place, _)| place).collect())
    }
}

impl Drop for Steps {
    /// Ends the daemons, and waits for that.
    fn drop(&mut self) {
        for step in &mut self.0 {
            drop(step.srun.stdin.take());
        }
        for step in &mut self.0 {
            end(&mut step.srun);
        }
    }
}

/// Waits for the end of an `srun`, for a limited time.
fn end(srun: &mut Child) {
    // The child has not been waited for, so no other process can have its id.
    let pid = i32::try_from(srun.id()).ok().and_then(Pid::from_raw);
    let ends_within = |max| {
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        process.is_some_and(|it| wait_until_ready(&it, Some(max)).unwrap_or(false))
    };
    if !ends_within(END_MAX) {
        // It has Slurm kill what is left of the step.
        _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        if !ends_within(CANCEL_MAX) {
            _ = srun.kill();
        }
    }
    _ = srun.wait();
}

fn step(job: &Job, component: &Component, directory: &str) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("srun");
    // Slurm runs it after each task, also one that was killed, and gives it no arguments.
    let mut epilog = OsString::from("--task-epilog=");
    epilog.push(&program);
    command.env(variable::SLURM_DIRECTORY.name, directory).arg(epilog);
    command.args(job.for_daemons(component)).arg(program);
    command.args(["slurm-node", "--directory", directory, "--component"]);
    command.arg(component.number.to_string());
    if component.serves {
        command.arg("--serve");
    }
    for name in NOT_FOR_SRUN {
        command.env_remove(name);
    }
    // Without a value, a node may offer devices of other jobs.
    for name in DEVICES_OF_A_NODE.iter().filter(|name| variable::value(name).is_some()) {
        command.env(name, "");
    }
    // Any directory may be missing on another node.
    command.current_dir(Path::new("/"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // The interrupt of a terminal is for the program.
    command.process_group(0);
    Ok(command)
}
