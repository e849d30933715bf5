//! `penstock slurm`: a program in a job of Slurm, with the nodes of the job as its pool.
//!
//! ```text
//!  first node                                    each node
//! +------------------------------------------+  +----------------------------------+
//! | penstock slurm -- srun ---- the key -----|--|-> penstock slurm-node            |
//! |    |                 <-- the addresses --|--|-     |                           |
//! |    |                                     |  |      v                           |
//! | penstock run => the program =============|==|=> penstock serve => workers      |
//! +------------------------------------------+  +----------------------------------+
//! ```
//!
//! [`steps`] has Slurm start [`node`] on each node. The program is `penstock run` with these nodes,
//! as a child of this process, which ends the daemons when the program has ended. What is decided
//! without I/O is in [`job`] and [`muster`].

pub mod args;
pub mod error;
mod job;
mod muster;
pub mod node;
mod steps;

use std::io::{self, IsTerminal as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use penstock_client::config::{KEY_VARIABLE, NODES_VARIABLE};
use penstock_process::signals::{self, Held};
use penstock_process::variable;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::Failure;
use crate::run::PrivateDirectory;
use crate::words;
use args::SlurmArgs;
use error::SlurmError;
use job::{Job, KEY_FILE, socket_name};
use steps::Steps;

/// Shells report 128 plus the signal's number for a program that a signal ended.
const SIGNALLED: i32 = 128;

/// Runs a program on the nodes of this job.
pub fn slurm(args: &SlurmArgs) -> Result<ExitCode, Failure> {
    words::split("slurm", &args.program)?;
    let job = Job::read(variable::text, &args.het_group)?;
    let Some(here) = &job.here else { return Err(move_to_first_node(&job)) };
    // Before there is any thread, and until the daemons have ended.
    let held = Held::hold().map_err(SlurmError::Process)?;
    let name = PrivateDirectory::new_name();
    let mut steps = Steps::start(&job, &name, &held)?;
    let muster = steps.muster(&job, &held)?;
    let directory = PrivateDirectory::in_memory(&name);
    // The daemon of this node is also on its Unix socket, where memory can be shared. On another
    // node, the same path is the socket of its own daemon. A daemon with two addresses is one node.
    let own = job.components.iter().filter(|it| it.serves && it.nodes.contains(here));
    let own = own.map(|it| format!("unix:{}", directory.join(socket_name(it.number)).display()));
    let addresses = muster.addresses().into_iter().map(str::to_owned);
    let nodes: Vec<_> = own.chain(addresses).collect();
    let status = run(args, &directory, &nodes.join(","), &held)?;
    drop(steps);
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Becomes this command on the first node of the job, as a step of it. Returns only if that fails.
fn move_to_first_node(job: &Job) -> Failure {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return SlurmError::Process(error).into(),
    };
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut command = Command::new("srun");
    command.args(job.for_first_node(has_terminal)).arg(program);
    command.args(std::env::args_os().skip(1));
    signals::as_before();
    SlurmError::Srun(command.exec()).into()
}

/// Runs the program to its end, and passes signals on to it.
fn run(
    args: &SlurmArgs,
    directory: &Path,
    nodes: &str,
    held: &Held,
) -> Result<ExitStatus, Failure> {
    let program = std::env::current_exe().map_err(SlurmError::Process)?;
    let mut command = Command::new(&program);
    command.args(job::run_words(args, std::process::id(), directory));
    command.env(NODES_VARIABLE, nodes).env(KEY_VARIABLE, directory.join(KEY_FILE));
    command.env(variable::KEYS.name, directory);
    // Slurm means the devices of this node, and a CUDA program would take them for the pool's.
    command.env_remove(variable::CUDA_VISIBLE_DEVICES.name);
    held.hand_on(&mut command);
    let failed = |source| Failure::Execute { program: PathBuf::from(&program), source };
    let mut child = command.spawn().map_err(failed)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| SlurmError::Process(io::ErrorKind::InvalidData.into()))?;
    let process =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|it| SlurmError::Process(it.into()))?;
    loop {
        let mut files = [PollFd::new(held, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
        match poll(&mut files, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SlurmError::Process(error.into()).into()),
        }
        if let Some(status) = child.try_wait().map_err(SlurmError::Process)? {
            return Ok(status);
        }
        held.pass_on(child.id());
    }
}
