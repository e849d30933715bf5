//! The command line of `penstock`. The man pages and completions are generated from it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

use crate::serve::ServeArgs;
use crate::slurm::args::{AFTER_SLURM, NodeArgs, SlurmArgs};

// The texts behind the options in the help. `pages` turns them into sections of the man pages.

const AFTER_ALL: &str = "\
Environment:
The nodes of the pool come from the first of these that names any: the variable PENSTOCK_NODES \
(ssh:HOST,unix:PATH,tcp:HOST:PORT,vsock:CID:PORT,... or local, or none), the file \
~/.config/penstock/pool.toml, the variable SLURM_JOB_NODELIST, the user's own daemon if it runs.
PENSTOCK_DEVICES (a query) selects devices of the pool: see penstock-devices(1). PENSTOCK_KEY \
names the key file. PENSTOCK_PLATFORMS=pool shows all devices as one platform; \
PENSTOCK_PLATFORMS=node shows each platform of each node. PENSTOCK_TIMEOUT_MS limits how long a \
node may take to answer. With PENSTOCK_LOG=1 the library and the embedded daemon write messages.

Exit status:
0 if the command succeeded; 1 if it failed; 2 if the command line or the configuration is wrong; \
3 if no node is configured, if none answers, or if a query selects no device.
`penstock run` exits as its program does, or with 125 if the pool could not be set up, 126 if the \
program cannot be executed, 127 if it is not found.";

const AFTER_SERVE: &str = "\
Examples:
  penstock serve
  penstock serve --listen local --listen tcp:0.0.0.0:7367
  penstock serve --listen unix:/run/gpus/sock --allow-user alice --allow-user bob

Security:
Everyone who may use a daemon can run programs as the user that started the daemon. Workers \
confine themselves at the level full, as far as the kernel and the drivers permit. Over TCP and \
vsock both sides must have the same key file: see `penstock key`. TCP that leaves a host is \
encrypted unless PENSTOCK_ENCRYPTION is never.";

const AFTER_BRIDGE: &str = "\
Examples:
  PENSTOCK_NODES=ssh:gpu01,ssh:alice@gpu02 penstock run -- ./program
  ssh gpu01 penstock bridge --check

Nodes over SSH:
A program with a node `ssh:HOST` runs `ssh HOST penstock bridge`. If you have no daemon there, the \
command starts one, which ends 5 minutes after its last client. The daemon belongs to the user of \
the login, and no other user can connect to it. Its log is daemon.log beside its socket.

Exit status:
0 after the end of a session; 1 if there is no daemon and none could be started.";

const AFTER_DEVICES: &str = "\
Examples:
  penstock devices
  penstock devices 'SELECT ALL WHERE type = gpu AND vendor = nvidia'
  penstock devices 'SELECT TOP 2 FROM NODE 0-3, gpu07 WHERE global_memory > 4GB ORDER BY \
compute_units DESC'
  PENSTOCK_DEVICES='SELECT WHERE extensions HAS cl_khr_fp64' penstock run -- clinfo -l

Queries:
SELECT [ALL | TOP count | POS place] [FROM NODE rank, first-last, host, ...] [WHERE condition] \
[ORDER BY attribute [ASC | DESC], ...]

A condition combines tests with AND, OR, NOT and parentheses. The tests are: attribute = value \
(also != < <= > >=), LIKE 'pattern' (with % and _), IN (value, ...), BETWEEN value AND value, HAS \
value (for sets and lists), IS NULL (the value is not known). LIKE, IN, BETWEEN and HAS may have \
NOT before them; the opposite of IS NULL is IS NOT NULL.

The attributes are those of clGetDeviceInfo in lower case without CL_DEVICE_, and type (cpu, gpu, \
accelerator, custom), memory, local_memory, compute_units, clock, driver, node, hostname, rank, \
local, platform, platform_version, device_index, node_devices, free_memory, shared. Sizes are in \
bytes or have a unit, as in 512MB; clocks are in MHz or have a unit.

A bare word matches a text that contains it (vendor = nvidia). A text in quotes matches only the \
whole text.";

const AFTER_STATUS: &str = "\
Figures of each client:
CORE-S is the core-seconds of the client's worker, including what CPU devices computed for the \
client. NODE J is the joules of the whole node, for all its users, while the client was served. \
For each device, IN USE S is the seconds from the client's first command on the device until all \
its commands were known to have ended; CORE-S and J are the core-seconds and joules of the \
device, if they can be told from those of others. A figure that is not known is `-`, and null in \
JSON; the reason stands below the table. See docs/energy.md.

Exit status:
0 if all nodes answer; 1 if some do and others do not; 3 if none does.";

const AFTER_METRICS: &str = "\
Examples:
  penstock metrics
  penstock metrics --listen 127.0.0.1:9367
  penstock metrics --listen unix:/run/penstock-metrics/sock --nodes gpu01,gpu02

Metrics:
The text has the format OpenMetrics, and ends with a line `# EOF`. The textfile collector of \
node_exporter reads it, too. A node that does not answer has the metric penstock_node_up with the \
value 0, and is named on standard error. The names of programs are in no metric. Users of the \
node's host have their numbers; others are key:NAME, host:ADDRESS, guest:PATH or machine:CID. The \
runs of `penstock run` are not asked. docs/operation.md lists the metrics.

Server:
With --listen the command answers GET /metrics over HTTP until it is ended, and asks the nodes for \
each answer, but at most once in a second. A node has 3.5 s for each of two steps, or \
PENSTOCK_TIMEOUT_MS if that is shorter, and an answer takes 7 s at most. Only the same user and \
root can connect to a Unix socket. Everybody who reaches a port can connect to it, and can stop \
scrapes with idle connections.

Exit status:
0, also if no node answers; 1 if the address cannot be used, or the server fails; 2 if the \
command line or the configuration is wrong; 3 if no node is configured.";

const AFTER_KEY: &str = "\
Examples:
  penstock key --create
  scp -p \"$(penstock key --path)\" gpu01:.config/penstock/key";

const AFTER_CONFIG: &str = "\
Problems:
Each problem is a line on standard error: a value that cannot be read, a mistake in pool.toml, or \
a variable that begins with PENSTOCK_ or WTR_ and that Penstock does not read.

Exit status:
0 if there is no problem; 2 otherwise.";

const AFTER_SIM: &str = "\
Examples:
  tools/sim/build.sh /tmp/sim
  penstock sim --nodes 64 --platform gbe -- /tmp/sim/matrix_mul --paper --kernel \
/tmp/sim/matrix_mul.cl

The program:
The program must be built for the simulator, together with libwater.a: see \
docs/notes/scaling.md. Its kernels take the time that the model says. With a model of mode \
`hollow` the kernels compute nothing. The times that the program measures are simulated times.";

const AFTER_ENERGY: &str = "\
Examples:
  penstock energy
  penstock energy -- ./program --its-option
  penstock energy --idle 10 --json --output figures.json -- ./program
  penstock energy --idle 0 -- sleep 1

Figures:
Without a program, the command lists the energy sources of this host, and for each source that \
cannot be read the reason. With a program, it runs the program and then writes the figures to \
standard error. The figures are those of the whole host, for all its users; only the core-seconds \
are the program's own, including all its threads and the children that it waited for.

A total is the sum over processor packages, memory and accelerators that are named beside it. \
Totals of different coverage cannot be compared. A figure that is not measured is `unavailable \
(reason)`, never 0; it is null in JSON.

Net figures leave out the energy that the same components take when the host is idle. The command \
measures that for some seconds before the program and again after it: do not use the host during \
that time.

Power model:
--power-model FILE names a TOML file with busy_core_watts, idle_core_watts and base_watts. \
Estimates that the model makes from core-seconds are in fields whose names begin with model_. \
They are no measurements, and appear in no other field.

Exit status:
That of the program, or 128 plus the number of the signal that ended it; 125 if nothing could be \
measured, 126 if the program cannot be executed, 127 if it is not found.";

const AFTER_COMM: &str = "\
Examples:
  penstock bench comm
  penstock bench comm --quick --bars
  penstock bench comm --path device --path host-mpi --sizes 8,1024,65536 --svg comm.svg
  penstock bench comm --devices 2,4,8,12 --json > comm.json

Paths:
device: kernels of different workers on this host store into each other's memory. proxy: the \
kernels hand their data to the workers' proxies, which send it over TCP. host-mpi: a copy to the \
host, MPI, and a copy to the device, one after the other; for the barrier, an empty kernel and \
MPI_Barrier. host-tcp: the same over a TCP socket. host-mpi-pipelined and host-tcp-pipelined: the \
best of sending in chunks, overlapping the copies with the transfer, and mapped memory. A path \
whose requirements (such as MPI) are missing on this host is named and skipped.

Figures:
All times are medians in microseconds: half a round trip, one message of a stream, or one \
barrier. MB/s are 10^6 bytes per second. Each run compares the bytes that arrived with the bytes \
that were sent. Core-us is the core time of all processes that took part, per message or barrier. \
Joules are those of the whole host, per word of a message (--word) or per barrier. If no counter \
can be read they are `unavailable (reason)`, and null in JSON. See docs/notes/comm.md.

Exit status:
0 if everything was measured that can be measured; 1 if a measurement failed or wrong bytes \
arrived; 125 if --require-energy is given and no energy could be measured.";

const AFTER_CHECK: &str = "\
Examples:
  penstock check --platform Portable --seconds 300
  penstock run -- penstock check --platform Penstock --jobs 2 --out found
  penstock check --seed 4711 --programs 1
  penstock check --list
  penstock run -- penstock check --cuda --seconds 60
  penstock run -- penstock check --kernels --seconds 600

Programs:
Each seed gives one program. The program has no data race, and the specification determines what \
it reads. It is a finding if a program reads something else, hangs, crashes or gets a wrong error \
code. The command shrinks the first program of each kind of finding and writes it as a C file. \
With --kernels, a program is one CUDA kernel, written as PTX. See docs/notes/checker.md.

Exit status:
0 if nothing was found; 1 if something was found; 2 if no program could be run.";

const AFTER_TRACE: &str = "\
Examples:
  PENSTOCK_TRACE=/tmp/t penstock run -- ./program
  penstock trace show /tmp/t.*
  penstock trace show --call LaunchKernel --call EventDone /tmp/t.4711
  penstock trace replay /tmp/t.4711

Traces:
With PENSTOCK_TRACE=FILE each process of Penstock writes the frames that it sends and receives to \
FILE.PID, with the time of each frame. A program that `penstock run` starts, and the workers of \
the daemon that this command starts for the local devices, inherit the variable. A daemon that \
runs already, or on another node, needs the variable in its own environment. With \
PENSTOCK_TRACE_PAYLOAD=BYTES a trace keeps only that number of bytes of each payload. A trace \
contains the program's data, and only its user can read it. See docs/debugging.md.

Exit status:
0 if the traces were shown, or if all answers of the replay are those of the trace; 1 if an \
answer differs or the replay failed; 2 if a file is not a trace.";

const AFTER_DEMO: &str = "\
Examples:
  penstock demo
  penstock demo --output /tmp -- --n 2048";

/// One program, every accelerator of the cluster: unmodified OpenCL and CUDA programs use the
/// devices of all nodes
#[derive(Debug, Parser)]
#[command(name = "penstock", version, after_help = AFTER_ALL, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon that offers the devices of this host, until it is interrupted
    #[command(after_help = AFTER_SERVE)]
    Serve(ServeArgs),
    /// Connect standard input and output to your own daemon of this host; SSH runs this on nodes
    #[command(after_help = AFTER_BRIDGE)]
    Bridge(BridgeArgs),
    /// List the devices of the pool, as `penstock run` shows them to a program
    #[command(after_help = AFTER_DEVICES)]
    Devices(DevicesArgs),
    /// List the daemons that announce themselves on the local network
    #[command(after_help = crate::discover::AFTER_DISCOVER)]
    Discover(crate::discover::DiscoverArgs),
    /// Run an OpenCL or CUDA program on the pool
    #[command(after_help = crate::run::args::AFTER_RUN, override_usage = "penstock run [OPTIONS] [--] PROGRAM [ARGS]...")]
    Run(crate::run::args::RunArgs),
    /// Run a program in a job of Slurm, on the devices of all nodes of the job
    #[command(after_help = AFTER_SLURM)]
    #[command(override_usage = "penstock slurm [OPTIONS] [--] PROGRAM [ARGS]...")]
    Slurm(SlurmArgs),
    /// Run the daemon of one node of a job, as srun starts it for `penstock slurm`
    #[command(hide = true)]
    SlurmNode(NodeArgs),
    /// Show the state of the daemons of the pool, and what each client costs
    #[command(after_help = AFTER_STATUS)]
    Status(StatusArgs),
    /// Show nodes, devices and clients of the pool anew each second, and end sessions
    #[command(after_help = crate::top::args::AFTER_TOP)]
    Top(crate::top::args::TopArgs),
    /// End a session of a node; its client gets an error
    #[command(after_help = crate::administer::args::AFTER_KILL)]
    Kill(crate::administer::args::KillArgs),
    /// Have a node take no new clients, so that its sessions end by and by
    #[command(after_help = crate::administer::args::AFTER_DRAIN)]
    Drain(crate::administer::args::DrainArgs),
    /// Write the state of the daemons of the pool for Prometheus, or serve it over HTTP
    #[command(after_help = AFTER_METRICS)]
    Metrics(MetricsArgs),
    /// Measure the pool and the local OpenCL platform, or the communication between devices
    Bench(BenchArgs),
    /// Run random OpenCL or CUDA programs on any driver and compare their results with a model
    #[command(after_help = AFTER_CHECK)]
    Check(crate::check::CheckCommand),
    /// Run a matrix product on the local platform and on a pool of two nodes on this host
    #[command(after_help = AFTER_DEMO)]
    Demo(DemoArgs),
    /// Run a libWater program on a simulated cluster, in simulated time
    #[command(after_help = AFTER_SIM, override_usage = "penstock sim [OPTIONS] --nodes <NUMBER> -- PROGRAM [ARGS]...")]
    Sim(SimArgs),
    /// Measure the energy and the core-seconds of a program, or list the energy sources of this
    /// host
    #[command(after_help = AFTER_ENERGY, override_usage = "penstock energy [OPTIONS] [-- PROGRAM [ARGS]...]")]
    Energy(EnergyArgs),
    /// Show or create the key that nodes and clients need over TCP and vsock
    #[command(after_help = AFTER_KEY)]
    Key(crate::key::KeyArgs),
    /// Show what the processes of a session sent to each other, or send it once more
    #[command(after_help = AFTER_TRACE, subcommand)]
    Trace(TraceCommand),
    /// List the environment variables that Penstock reads, and say which values it cannot read
    #[command(after_help = AFTER_CONFIG)]
    Config,
    /// Print the options with which a container engine gives a container the pool
    Container(crate::container::ContainerArgs),
    /// Say what is wrong with this host: devices, drivers, the pool, virtual machines, the network
    Doctor(crate::doctor::args::DoctorArgs),
    /// Run programs in virtual machines; define and check machines on this host
    #[command(subcommand)]
    Vm(crate::vm::args::VmCommand),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(crate::pages::ManArgs),
    /// Write the completions for a shell to standard output
    Completions(CompletionsArgs),
    /// Watch a program, run the daemon for its local devices, and clean up when it has ended
    #[command(hide = true)]
    Guard(GuardArgs),
}

#[derive(Args, Debug)]
pub struct BridgeArgs {
    /// Only find or start the daemon, and say where it is
    #[arg(long)]
    pub check: bool,
    /// Let the client connect to the daemon directly, if it can: ask the daemon for a one-time key
    #[arg(long, hide = true)]
    pub direct: bool,
}

#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List only the devices that this query selects, in its order; overrides PENSTOCK_DEVICES
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    /// Write the list as JSON
    #[arg(long)]
    pub json: bool,
    /// Nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Start no daemon for the devices of this host
    #[arg(long)]
    pub no_local: bool,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Write the status as JSON
    #[arg(long)]
    pub json: bool,
    /// Show what each user holds against the limits, who set each limit, and how it is enforced
    #[arg(long)]
    pub limits: bool,
    /// Nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
}

#[derive(Args, Debug)]
pub struct MetricsArgs {
    /// Serve the metrics at this address, IP:PORT or unix:PATH, instead of writing them once
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Write the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Take fewer samples: less than a minute, but less exact
    #[arg(long)]
    pub quick: bool,
    /// Directory for benchmarks.json and benchmarks.md
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure communication between devices: on the devices, through proxies, and through the
    /// hosts with MPI and TCP
    #[command(after_help = AFTER_COMM)]
    Comm(CommArgs),
}

#[derive(Args, Debug)]
pub struct CommArgs {
    /// Write the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Take fewer sizes and samples: less than a minute, but less exact
    #[arg(long)]
    pub quick: bool,
    /// Measure only this path. Can be given several times [default: all]
    #[arg(long, value_name = "PATH", value_parser = comm_path())]
    pub path: Vec<String>,
    /// Message sizes in bytes, separated by commas [default: 8, and the powers of four from 16 to 4
    /// MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<u64>,
    /// Numbers of devices for the barrier, separated by commas [default: 2,4,6,8,12]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub devices: Vec<u32>,
    /// Number of devices that are GPUs of CUDA's own driver. These come first; all others are CPU
    /// devices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub gpus: u32,
    /// Bytes per word, for the figure of joules per word
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub word: u64,
    /// Shortest time that each figure is measured for [default: 0.5; 0.1 with --quick; at least 2
    /// if energy is measured]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Write the figures as an SVG picture to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Show which of the bars of docs/notes/comm.md are met
    #[arg(long)]
    pub bars: bool,
    /// Fail if no energy can be measured
    #[arg(long)]
    pub require_energy: bool,
    /// Act as one process of a host path. The file describes the measurement, the number selects
    /// the process
    #[arg(long, hide = true, num_args = 1..=2, value_name = "FILE")]
    pub as_rank: Vec<PathBuf>,
}

fn comm_path() -> PossibleValuesParser {
    PossibleValuesParser::new(penstock_bench::plan::Path::ALL.map(penstock_bench::plan::Path::name))
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Print the frames of one or more traces, in the order of their times
    Show(TraceShowArgs),
    /// Send the calls of a client's trace to another worker, and compare its answers
    Replay(TraceReplayArgs),
}

#[derive(Args, Debug)]
pub struct TraceShowArgs {
    /// Traces to show together
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Show only this call, such as LaunchKernel. Can be given several times
    #[arg(long, value_name = "NAME")]
    pub call: Vec<String>,
    /// Show only the link with this number
    #[arg(long, value_name = "NUMBER")]
    pub link: Option<u32>,
    /// Show only the process with this id
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Show whole payloads in hexadecimal
    #[arg(long)]
    pub payload: bool,
}

#[derive(Args, Debug)]
pub struct TraceReplayArgs {
    /// Trace of a client
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Link of the trace to replay, if the client had several
    #[arg(long, value_name = "NUMBER")]
    pub link: Option<u32>,
    /// Node to use, instead of the configured ones
    #[arg(long, value_name = "ADDRESS")]
    pub nodes: Option<String>,
    /// Longest wait for one answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub patience: u32,
}

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Directory for the timelines of the two runs
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
    /// Arguments for the program; without them it multiplies small matrices
    #[arg(last = true, value_name = "ARGS")]
    pub program_args: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct SimArgs {
    /// Number of nodes to simulate
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Cluster: gbe, ib-qdr, or a SimGrid platform file
    #[arg(long, value_name = "NAME", default_value = "gbe")]
    pub platform: String,
    /// Model of the nodes' devices and of the times of their kernels: vsc2, or a file
    #[arg(long, value_name = "NAME", default_value = "vsc2")]
    pub model: String,
    /// Whether collective operations replace transfers: off, paper or auto [default: that of
    /// libWater]
    #[arg(long, value_name = "MODE")]
    pub dcr: Option<String>,
    /// Option for SimGrid, such as smpi/test:1e-6. Can be given several times
    #[arg(long, value_name = "OPTION")]
    pub option: Vec<String>,
    /// Show the messages of SimGrid, too
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

#[derive(Args, Debug)]
pub struct EnergyArgs {
    /// Write the figures as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the figures to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How long to measure the idle power before the program and again after it; 0 omits both
    /// measurements
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub idle: f64,
    /// Time between two power samples in milliseconds, for sources that have no energy counter
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval: u64,
    /// Also try the perf event energy-psys. Where it does not work, as in virtual machines, the
    /// kernel logs a warning
    #[arg(long)]
    pub psys: bool,
    /// File with the watts of busy and idle cores, for figures whose names begin with model_
    #[arg(long, value_name = "FILE")]
    pub power_model: Option<PathBuf>,
    /// Fail before the program starts if no energy can be measured
    #[arg(long)]
    pub require_energy: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell to write them for
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `penstock guard`; [`crate::run::guard`] describes it.
#[derive(Args, Debug)]
pub struct GuardArgs {
    /// Id of the process to watch
    #[arg(long)]
    pub pid: i32,
    /// The private directory, removed at the end
    #[arg(long)]
    pub directory: PathBuf,
    /// Run a daemon in that directory
    #[arg(long)]
    pub serve: bool,
    /// Do not move to the background first
    #[arg(long)]
    pub here: bool,
}
