//! Why a command failed, and its exit status.

use std::io;
use std::path::{Path, PathBuf};

use penstock_client::config::ConfigError;
use penstock_link::LinkError;

/// Exit status: the command failed.
const FAILED: u8 = 1;
/// Exit status: the command line or the configuration is wrong. Clap uses the same number.
pub const USAGE: u8 = 2;
/// Exit status: no node answers.
const NO_NODE: u8 = 3;
/// Exit status of `penstock run`: the pool could not be set up. This and the next two follow `env`,
/// `nice` and `timeout`.
const RUN_FAILED: u8 = 125;
/// Exit status of `penstock run`: the program cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status of `penstock run`: the program is not found.
const NOT_FOUND: u8 = 127;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device query is wrong.
    #[error("{0}")]
    Query(penstock_dql::Error),
    #[error("{argument}: {reason}")]
    Argument {
        argument: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A link failed, or the key file is unusable.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The local network cannot be searched.
    #[error("cannot search the local network: {0}")]
    Search(String),
    /// A thread of `penstock metrics --listen` ended, which none does by itself.
    #[error("a thread that serves metrics has ended")]
    Thread,
    /// The daemon of `penstock serve` failed.
    #[error("the daemon: {0}")]
    Daemon(String),
    /// The pool names no nodes.
    #[error(
        "the pool has no nodes; start a daemon here (penstock serve), or name nodes with PENSTOCK_NODES or in {}",
        path.display()
    )]
    NoNodes {
        /// File in which nodes could be named.
        path: PathBuf,
    },
    /// No node of the pool answers. Each has been named on standard error before.
    #[error("no node of the pool answers")]
    NoneAnswers,
    /// Nodes that the user has named are missing. Each has been named on standard error before.
    #[error(
        "{missing} of the {all} nodes {} missing; --wait SECONDS waits for them, and \
         --allow-missing does without them", if *missing == 1 { "is" } else { "are" }
    )]
    MissingNodes { missing: usize, all: usize },
    /// Some nodes of the pool do not answer. Each has been named on standard error before.
    #[error("{silent} of the pool's {all} nodes do not answer")]
    SomeSilent { silent: usize, all: usize },
    /// The nodes of the pool answer, but none has a device. Each has been named on standard error
    /// before.
    #[error("the pool has no devices")]
    NoDevices,
    /// The device query selects nothing.
    #[error(
        "{by} selects none of the pool's {all} devices (penstock devices shows what a query selects)"
    )]
    NoneSelected {
        /// The query or the variable that selects.
        by: &'static str,
        /// Number of devices in the pool.
        all: usize,
    },
    /// A daemon obeys only administrators.
    #[error(
        "node {node} does not obey: only the user who runs its daemon and root may do this, over \
         the daemon's Unix socket or over SSH as that user (ssh:HOST), from outside of a session \
         and in the PID namespace of the daemon"
    )]
    NoAdministrator { node: String },
    /// There is no session to end.
    #[error("node {node} has no session {session}")]
    NoSession { node: String, session: u32 },
    /// The daemon does not know the order.
    #[error("the daemon of node {node} is of an older release, which cannot do this")]
    UnknownOrder { node: String },
    /// No directory is known in which the key file could lie.
    #[error(
        "neither XDG_CONFIG_HOME nor HOME is an absolute path, so there is no default place for \
         the key file; set HOME"
    )]
    NoHome,
    /// An operation on a file failed.
    #[error("{}: cannot {doing} it: {source}", path.display())]
    File {
        path: PathBuf,
        /// Verb for the operation, such as "write".
        doing: &'static str,
        source: io::Error,
    },
    /// A part of Penstock, or a program built with it, is not installed.
    #[error("{what} is not there; looked for it at {}; {remedy}", list(looked))]
    Missing {
        what: &'static str,
        /// Paths at which it was expected.
        looked: Vec<PathBuf>,
        /// What the reader can do.
        remedy: &'static str,
    },
    /// A program that this command started failed.
    #[error("{what} failed ({how})")]
    Program {
        what: String,
        /// Its exit status or signal.
        how: String,
    },
    /// The embedded daemon did not start.
    #[error(
        "the daemon for the local devices did not start: {0}; run `penstock serve` to see why, or use --no-local"
    )]
    Embedded(String),
    /// Standard output is closed or full.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// `penstock energy` could not measure.
    #[error("{0}")]
    Measure(String),
    /// `penstock doctor` could not look.
    #[error(transparent)]
    Tree(#[from] penstock_doctor::TreeError),
    /// `penstock doctor` could not write a copy.
    #[error("{}: cannot write the copy: {source}", path.display())]
    Collect { path: PathBuf, source: io::Error },
    /// A guest of `penstock vm` could not be made, or was lost.
    #[error(transparent)]
    Vm(#[from] penstock_vm::VmError),
    /// `penstock slurm` found no job, or could not start its daemons.
    #[error(transparent)]
    Slurm(#[from] crate::slurm::error::SlurmError),
    /// `penstock run` could not set up the pool.
    #[error("{0}")]
    Run(Box<Failure>),
    /// `penstock run` could not execute the program.
    #[error("{}: {}", program.display(), not_run(source))]
    Execute { program: PathBuf, source: io::Error },
}

impl Failure {
    /// For `map_err`: makes the failure of the operation `doing` on the file `path`.
    pub fn file(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_path_buf(), doing, source }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Query(_) | Self::Argument { .. } => USAGE,
            Self::NoNodes { .. }
            | Self::NoneAnswers
            | Self::MissingNodes { .. }
            | Self::NoDevices
            | Self::NoneSelected { .. } => NO_NODE,
            Self::Run(_)
            | Self::Vm(_)
            | Self::Slurm(_)
            | Self::Measure(_)
            | Self::Tree(_)
            | Self::Collect { .. } => RUN_FAILED,
            Self::Execute { source, .. } if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Self::Execute { .. } => NOT_EXECUTABLE,
            _ => FAILED,
        }
    }
}

/// Says why a program cannot be run.
fn not_run(source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::NotFound {
        // The system says the same of a script whose interpreter is missing.
        return "there is no such program (a name without a slash is searched in PATH)".to_owned();
    }
    format!("cannot run it: {source}")
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
