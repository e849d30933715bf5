//! Why a job of Slurm has no pool.

use std::io;
use std::process::ExitStatus;

use penstock_client::config::ConfigError;

/// Why a job has no pool.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error(
        "SLURM_JOB_NODELIST is not set, so this is no job of Slurm; use this command in a script \
         for sbatch, or under salloc"
    )]
    NoJob,
    #[error(
        "this is one of several tasks of a step, and each would start daemons; start them once \
         for the job: penstock slurm -- srun --overlap ... PROGRAM"
    )]
    ManyTasks,
    #[error(transparent)]
    List { source: ConfigError },
    #[error("--het-group: the job has no component {number}: it has {count}, counted from 0")]
    NoComponent { number: u32, count: usize },
    #[error("the variable {name} of this heterogeneous job is missing or is not understood")]
    Unreadable { name: String },
    #[error(
        "the job asks for GPUs by task, and Slurm does not say that each node of component \
         {component} has the same number of them; ask for them by node: --gpus-per-node"
    )]
    Gpus { component: u32 },
    #[error("cannot start srun, which starts the daemons: {0}")]
    Srun(io::Error),
    #[error("cannot start or watch the processes of a job: {0}")]
    Process(io::Error),
    #[error(
        "srun has ended before all daemons were ready ({how}); its messages on standard error say \
         why"
    )]
    Ended { how: ExitStatus },
    #[error("the daemon of node {node} did not start: {reason}")]
    Node { node: String, reason: String },
    #[error("no daemon was ready within {seconds} s on these nodes: {nodes}")]
    Late { nodes: String, seconds: u64 },
    #[error("signal {0} has come before all daemons were ready")]
    Signal(i32),
    #[error("node {node} has no address in the network of the first node: {source}")]
    Address { node: String, source: io::Error },
}
