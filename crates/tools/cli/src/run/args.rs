//! The command line of `penstock run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Longest wait of `penstock run`, in seconds: a week.
const WAIT_S_MAX: u64 = 7 * 24 * 3600;

pub const AFTER_RUN: &str = "\
Examples:
  penstock run -- clinfo -l
  penstock run --nodes tcp:gpu01,tcp:gpu02 -- ./program --its-option
  penstock run --nodes local,ssh:gpu01 --wait 600 -- ./program
  mpirun -n 4 penstock run --mpi -- ./program
  penstock run --summary -- ./program

Programs:
An OpenCL program finds the pool through the ICD loader. A CUDA program finds it through \
Penstock's own CUDA libraries, which this command puts first in LD_LIBRARY_PATH. If the CUDA \
runtime is linked into the program, the command replaces it (LD_PRELOAD). It cannot replace the \
runtime of a stripped program: it says so on standard error, and CUDA in that program does not \
find the pool.

MPI:
With --mpi, the program can pass device memory of the pool to calls of MPI (LD_PRELOAD of \
libpenstock_mpi_openmpi.so or libpenstock_mpi_mpich.so). The command tells the MPI by the program \
file. If the program loads MPI later, as Python does, name the MPI: --mpi=openmpi or --mpi=mpich.

Nodes:
The command uses the nodes that --nodes, PENSTOCK_NODES or pool.toml names, and no others. If one \
of them does not answer, or has no session for this user, the command does not start the program. \
--wait has it wait for such nodes, and --allow-missing has it do without them. The node `local` is \
your own daemon, or the devices of this host if you have no daemon.

If nobody has named nodes, the command uses those of the Slurm allocation, or else your own \
daemon. It starts a daemon for the devices of this host, which ends with the program, if none of \
these answers on this host.

The command names each node that does not answer on standard error. A daemon with several \
addresses is one node. If no node has a device that the program may use, the command does not \
start the program.

Overload:
If many programs start together, a node starts as many as it can, and the other programs wait in \
line. A program waits as long as the daemon lives, and says so on standard error.

Devices:
The program sees the devices that the query of --devices or PENSTOCK_DEVICES selects, in the \
query's order. Without a query it sees all devices, node by node. See penstock-devices(1).

Summary:
With --summary, each process that uses the pool by OpenCL or CUDA says at its end what it did and \
for what its threads waited: commands, bytes, builds, and what bounded the run. It says so on \
standard error, or in one line of JSON that it adds to FILE. A process that a signal or _exit ends \
says nothing.

Exit status:
That of the program, which has this command's process id and gets its signals; 125 if the pool \
could not be set up, 126 if the program cannot be executed, 127 if it is not found.";

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Nodes to use, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Show the program only the devices that this query selects; overrides PENSTOCK_DEVICES
    #[arg(long, value_name = "QUERY")]
    pub devices: Option<String>,
    /// Start no daemon for the devices of this host
    #[arg(long)]
    pub no_local: bool,
    /// Do without named nodes that do not answer, as long as one of them does
    #[arg(long)]
    pub allow_missing: bool,
    /// Wait for nodes that do not answer or are full, at most this number of seconds
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=WAIT_S_MAX))]
    pub wait: Option<u64>,
    /// Let the program pass CUDA device memory to MPI
    #[arg(long, value_enum, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "auto")]
    pub mpi: Option<MpiName>,
    /// Summarise the run on standard error when the program ends, or add JSON to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option, reason = "the form of clap for an option without its value")]
    pub summary: Option<Option<PathBuf>>,
    /// Existing directory with an entry for the ICD loader, which another process removes
    #[arg(long = "in", hide = true)]
    pub directory: Option<PathBuf>,
    /// Id of the parent. The program ends with it
    #[arg(long, hide = true)]
    pub bound_to: Option<i32>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// MPI that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MpiName {
    Auto,
    Openmpi,
    Mpich,
}

impl MpiName {
    /// Returns the word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }
}
