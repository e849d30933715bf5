//! What can be typed after `penstock`. The man pages and completions are made from this.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

// What follows the options in the help, and becomes sections of the man pages: see `pages`.

const AFTER_ALL: &str = "\
Environment:
The pool's nodes come from the first of these that names any: PENSTOCK_NODES (unix:PATH,tcp:HOST:PORT,... or local, or \
none), the file ~/.config/penstock/pool.toml, SLURM_JOB_NODELIST, the own daemon if it runs.
PENSTOCK_DEVICES (a query) selects devices of the pool: see penstock-devices(1). PENSTOCK_KEY names the key file, \
PENSTOCK_PLATFORMS=pool|node says how the pool is shown, PENSTOCK_TIMEOUT_MS how long a \
node may take to answer, PENSTOCK_LOG=1 lets the library and the embedded daemon write messages.

Exit status:
0 done; 1 it failed; 2 the command line or the configuration is wrong; 3 no node answers.
`penstock run` exits as its program does, or with 125 if the pool could not be set up, 126 if the program cannot be \
executed, 127 if it is not found.";

const AFTER_SERVE: &str = "\
Examples:
  penstock serve
  penstock serve --listen local --listen tcp:0.0.0.0:7367
  penstock serve --listen unix:/run/gpus/sock --allow-user alice --allow-user bob

Security:
Whoever may use a daemon can run programs as the user that started it. Over TCP both sides must have the same key file: \
see `penstock key`. TCP is not encrypted.";

const AFTER_DEVICES: &str = "\
Examples:
  penstock devices
  penstock devices 'SELECT ALL WHERE type = gpu AND vendor = nvidia'
  penstock devices 'SELECT TOP 2 FROM NODE 0-3, gpu07 WHERE global_memory > 4GB ORDER BY compute_units DESC'
  PENSTOCK_DEVICES='SELECT WHERE extensions HAS cl_khr_fp64' penstock run -- clinfo -l

Queries:
SELECT [ALL | TOP count | POS place] [FROM NODE rank, first-last, host, ...] [WHERE condition] [ORDER BY attribute [ASC | \
DESC], ...]

A condition joins tests by AND, OR, NOT and parentheses: attribute = value (also != < <= > >=), LIKE 'pattern' (with % and _), \
IN (value, ...), BETWEEN value AND value, HAS value (sets and lists), IS NULL (not known). Each may have NOT before it.

Attributes are those of clGetDeviceInfo in small letters without CL_DEVICE_, and type (cpu, gpu, accelerator, custom), memory, \
local_memory, compute_units, clock, driver, node, hostname, rank, local, platform, platform_version, device_index, \
node_devices, free_memory, shared. Sizes are bytes or have a unit, as in 512MB; clocks are MHz or have a unit.

A bare word is true for a text in which it stands (vendor = nvidia), a text in quotes only for the whole text.";

const AFTER_RUN: &str = "\
Examples:
  penstock run -- clinfo -l
  penstock run --nodes tcp:gpu01,tcp:gpu02 -- ./program --its-option

Nodes:
With no node configured, a daemon for the devices of this host is started and ends with the program. It is added too if none of the \
nodes is on this host, unless --no-local is given. A node that does not answer is named on standard error and left out. A daemon that is \
named by several addresses is one node. If no node answers, or none has a device that the program may use, the program is not started.

Overload:
A node with more programs than it can start at once has the others wait in line. A program waits as long as the daemon lives, and says so \
on standard error.

Devices:
The program sees the devices that the query in PENSTOCK_DEVICES selects, in its order; without one all devices, node by node. See \
penstock-devices(1).

Exit status:
That of the program, which has this command's process id and gets its signals; 125 if the pool could not be set up, \
126 if the program cannot be executed, 127 if it is not found.";

const AFTER_STATUS: &str = "\
Figures of each client:
CORE-S is core-seconds of its worker, with what CPU devices computed for it. NODE J is joules of the whole node while the client was \
served, whoever used it. Of each device, IN USE S is the seconds from the first command that it was given until all were known to \
have ended; CORE-S and J are its own core-seconds and joules, where they can be told from others'. What is not known is \
`unavailable (reason)`, and null in JSON. See docs/energy.md.";

const AFTER_KEY: &str = "\
Examples:
  penstock key --create
  scp -p \"$(penstock key --path)\" gpu01:.config/penstock/key";

const AFTER_SIM: &str = "\
Examples:
  tools/sim/build.sh /tmp/sim
  penstock sim --nodes 64 --platform gbe -- /tmp/sim/matrix_mul --paper --kernel /tmp/sim/matrix_mul.cl

The program:
It must be built for the simulator, together with libwater.a: see docs/scaling.md. Its kernels take the time that the model says; with a \
model of mode `hollow` nothing is computed. The times it measures are simulated.";

const AFTER_ENERGY: &str = "\
Examples:
  penstock energy
  penstock energy -- ./program --its-option
  penstock energy --idle 10 --json --output figures.json -- ./program
  penstock energy --idle 0 -- sleep 1

Figures:
Without a command, the energy sources of this host are listed, and why each that cannot be read is unavailable. With one, it is run, \
and the figures are written to standard error when it has ended. They are those of the whole host, whoever used it; only core-seconds \
are the command's own, with all its threads and the children that it waited for.

A total is the sum of processor packages, memory and accelerators: of those that are named with it. Totals of different coverage cannot \
be compared. What is not measured is `unavailable (reason)`, and never 0; null in JSON.

Net figures lack what the same components take when the host is idle, which is measured for some seconds before the command and again \
after it: leave the host alone meanwhile.

Power model:
--power-model FILE names a TOML file with busy_core_watts, idle_core_watts and base_watts. What it makes of core-seconds is written in \
fields whose names begin with model_. It is no measurement, and stands in no other field.

Exit status:
That of the command, or 128 and the number of the signal that ended it; 125 if it could not be measured, 126 if it cannot be executed, 127 \
if it is not found.";

const AFTER_COMM: &str = "\
Examples:
  penstock bench comm
  penstock bench comm --quick --bars
  penstock bench comm --path device --path host-mpi --sizes 8,1024,65536 --svg comm.svg
  penstock bench comm --devices 2,4,8,12 --json > comm.json

Paths:
device: kernels of different workers on this host store into each other's memory. proxy: their kernels hand over to the workers' \
proxies, which send over TCP. host-mpi: copy to the host, MPI, copy to the device, one after the other, and for the barrier a \
kernel that does nothing and MPI_Barrier. host-tcp: the same over a TCP socket. host-mpi-pipelined and host-tcp-pipelined: the \
best of chunks, copies meanwhile and mapped memory. What is not there on this host, as MPI, is named and skipped.

Figures:
Medians; in microseconds half a round trip, one message of a stream, or one barrier; MB/s are 10^6 bytes per second. Each run \
compares what arrived with what was sent. Core-us is the time of cores, of all processes that took part, for one message or \
barrier. Joules are those of the whole host, by word of a message (--word) or by barrier; where no counter can be read they are \
`unavailable (reason)`, and null in JSON. See docs/comm.md.

Exit status:
0 all was measured that can be; 1 something went wrong, or wrong bytes arrived; 125 --require-energy, and there is none.";

const AFTER_CHECK: &str = "\
Examples:
  penstock check --platform Portable --seconds 300
  penstock run -- penstock check --platform Penstock --jobs 2 --out found
  penstock check --seed 4711 --programs 1
  penstock check --list
  penstock run -- penstock check --cuda --seconds 60

Programs:
Each seed gives one program. The program has no data race, and the specification determines what it sees. A program that sees \
something else, hangs, crashes or gets a wrong code is a finding. Of each kind of finding, the first program is made smaller and \
written as a C file. See docs/checker.md.

Exit status:
0 nothing was found; 1 something was found; 2 nothing could be run.";

const AFTER_DEMO: &str = "\
Examples:
  penstock demo
  penstock demo --output /tmp -- --n 2048";

/// One program, every accelerator of the cluster: unmodified OpenCL programs use the devices of all nodes
#[derive(Debug, Parser)]
#[command(name = "penstock", version, after_help = AFTER_ALL, max_term_width = 100)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Offer the devices of this host: run its daemon until it is interrupted
    #[command(after_help = AFTER_SERVE)]
    Serve(ServeArgs),
    /// List the devices of the pool, as `penstock run` shows them
    #[command(after_help = AFTER_DEVICES)]
    Devices(DevicesArgs),
    /// Run an OpenCL program on the pool
    #[command(after_help = AFTER_RUN, override_usage = "penstock run [OPTIONS] [--] PROGRAM [ARGS]...")]
    Run(RunArgs),
    /// Show what the daemons of the pool do
    #[command(after_help = AFTER_STATUS)]
    Status(StatusArgs),
    /// Measure the pool beside the local OpenCL platform, or communication between devices
    Bench(BenchArgs),
    /// Run random OpenCL or CUDA programs on any driver and compare what they see with a model
    #[command(after_help = AFTER_CHECK)]
    Check(crate::check::CheckCommand),
    /// Run a matrix product on a pool of two nodes on this host, and beside it locally
    #[command(after_help = AFTER_DEMO)]
    Demo(DemoArgs),
    /// Run a libWater program on a simulated cluster, in simulated time
    #[command(after_help = AFTER_SIM, override_usage = "penstock sim [OPTIONS] --nodes <NUMBER> -- PROGRAM [ARGS]...")]
    Sim(SimArgs),
    /// Measure the energy and the core-seconds of a command, or list the energy sources of this host
    #[command(after_help = AFTER_ENERGY, override_usage = "penstock energy [OPTIONS] [-- PROGRAM [ARGS]...]")]
    Energy(EnergyArgs),
    /// Show or make the key that nodes and clients need over TCP
    #[command(after_help = AFTER_KEY)]
    Key(KeyArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
    /// Write the completions for a shell to standard output
    Completions(CompletionsArgs),
    /// Stay with a program, serve its local devices, and tidy up behind it
    #[command(hide = true)]
    Guard(GuardArgs),
}

/// `penstock serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where to listen: unix:PATH, tcp:HOST:PORT, or local for the user's own socket. Can be given several times
    /// [default: local]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// Serve this user too, by name or number, on Unix sockets. Can be given several times [default: only the own user]
    #[arg(long, value_name = "USER")]
    pub allow_user: Vec<String>,
    /// How to write the log, to standard error
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    pub log: LogForm,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub ends_with_parent: bool,
}

/// Form of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// `penstock devices`.
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List only the devices that this query selects, in its order, whatever PENSTOCK_DEVICES says
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// The nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Leave out the devices of this host, unless its daemon is one of the nodes
    #[arg(long)]
    pub no_local: bool,
}

/// `penstock status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// The nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
}

/// `penstock run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The nodes to use, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Leave out the devices of this host, unless its daemon is one of the nodes
    #[arg(long)]
    pub no_local: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// `penstock bench`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// What to measure instead
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Take fewer samples: less than a minute, and less exact
    #[arg(long)]
    pub quick: bool,
    /// Write benchmarks.json and benchmarks.md there
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// What to measure instead of the pool.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure communication between devices: on the devices, through proxies, and through the hosts over MPI and TCP
    #[command(after_help = AFTER_COMM)]
    Comm(CommArgs),
}

/// `penstock bench comm`.
#[derive(Args, Debug)]
pub struct CommArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Take fewer sizes and samples: less than a minute, and less exact
    #[arg(long)]
    pub quick: bool,
    /// Measure only this path. Can be given several times [default: all]
    #[arg(long, value_name = "PATH", value_parser = comm_path())]
    pub path: Vec<String>,
    /// Sizes of messages, in bytes, with commas between [default: 8, and the powers of four from 16 to 4 MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<u64>,
    /// Numbers of devices for the barrier, with commas between [default: 2,4,6,8,12]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub devices: Vec<u32>,
    /// How many of the devices are GPUs that CUDA's own driver has, the first ones; the others are CPU devices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub gpus: u32,
    /// Bytes of a word, for joules by word
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub word: u64,
    /// How long each figure is measured at least [default: 0.5; 0.1 with --quick; 2 or more where energy is measured]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Write a picture of the figures there, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Say which of the bars of docs/comm.md are met
    #[arg(long)]
    pub bars: bool,
    /// Fail if no energy can be measured
    #[arg(long)]
    pub require_energy: bool,
    /// Take part as one process of a host path: the file says how, and the number which one
    #[arg(long, hide = true, num_args = 1..=2, value_name = "FILE")]
    pub as_rank: Vec<PathBuf>,
}

fn comm_path() -> PossibleValuesParser {
    PossibleValuesParser::new(penstock_bench::plan::Path::ALL.map(penstock_bench::plan::Path::name))
}

/// `penstock demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Where to write the timelines
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
    /// Arguments for the program, instead of its small defaults
    #[arg(last = true, value_name = "ARGS")]
    pub program_args: Vec<OsString>,
}

/// `penstock sim`.
#[derive(Args, Debug)]
pub struct SimArgs {
    /// How many nodes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// The cluster: gbe, ib-qdr, or a platform file of SimGrid
    #[arg(long, value_name = "NAME", default_value = "gbe")]
    pub platform: String,
    /// The nodes' devices and the time of their kernels: vsc2, or a file
    #[arg(long, value_name = "NAME", default_value = "vsc2")]
    pub model: String,
    /// Replacement of transfers by collective ones: off, paper or auto [default: the library's]
    #[arg(long, value_name = "MODE")]
    pub dcr: Option<String>,
    /// An option of SimGrid, as smpi/test:1e-6. Can be given several times
    #[arg(long, value_name = "OPTION")]
    pub option: Vec<String>,
    /// Show what SimGrid says of itself
    #[arg(long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// `penstock energy`.
#[derive(Args, Debug)]
pub struct EnergyArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Write there, instead of to standard error, what was measured
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For how long idle power is measured before the command, and again after it; 0 does without
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub idle: f64,
    /// Time between two samples of power, of sources that have no energy counter, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval: u64,
    /// Try the perf event energy-psys too; where it is dead, as in virtual machines, the kernel logs a warning
    #[arg(long)]
    pub psys: bool,
    /// Watts of a busy and of an idle core, for figures named model_
    #[arg(long, value_name = "FILE")]
    pub power_model: Option<PathBuf>,
    /// Fail, before the command is run, if no energy can be measured
    #[arg(long)]
    pub require_energy: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `penstock key`.
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// Make a new key, unless there is one
    #[arg(long)]
    pub create: bool,
    /// Print only the path of the key file
    #[arg(long)]
    pub path: bool,
}

/// `penstock man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory, which must be there
    pub directory: PathBuf,
}

/// `penstock completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `penstock guard`: see [`crate::run::guard`].
#[derive(Args, Debug)]
pub struct GuardArgs {
    /// The process to stay with
    #[arg(long)]
    pub pid: i32,
    /// The private directory, removed at the end
    #[arg(long)]
    pub directory: PathBuf,
    /// Run a daemon in that directory
    #[arg(long)]
    pub serve: bool,
    /// Do not go into the background first
    #[arg(long)]
    pub here: bool,
}
