//! Why a command failed, and its exit status.

use std::io;
use std::path::{Path, PathBuf};

use penstock_client::config::{ConfigError, DEVICES_VARIABLE};
use penstock_link::LinkError;

/// Exit status: it failed.
const FAILED: u8 = 1;
/// Exit status: the command line or the configuration is wrong. Clap's own.
const USAGE: u8 = 2;
/// Exit status: no node answers.
const NO_NODE: u8 = 3;
/// Exit status of `penstock run`: the pool could not be set up. This and the next two are those of `env`, `nice`, `timeout`.
const RUN_FAILED: u8 = 125;
/// Exit status of `penstock run`: the program cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status of `penstock run`: the program is not found.
const NOT_FOUND: u8 = 127;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The query of devices is wrong.
    #[error("{0}")]
    Query(penstock_dql::Error),
    /// An argument is wrong.
    #[error("{argument}: {reason}")]
    Argument {
        /// Which.
        argument: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A link, or its key.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The daemon.
    #[error("the daemon: {0}")]
    Daemon(String),
    /// The pool names no nodes.
    #[error(
        "the pool has no nodes; start a daemon here (penstock serve), or name nodes with PENSTOCK_NODES or in {}",
        path.display()
    )]
    NoNodes {
        /// Where they could be named.
        path: PathBuf,
    },
    /// No node of the pool answers; each was named before.
    #[error("no node of the pool answers")]
    NoneAnswers,
    /// The nodes of the pool answer, and none has a device; each was named before.
    #[error("the pool has no devices")]
    NoDevices,
    /// The query of devices selects nothing.
    #[error(
        "{DEVICES_VARIABLE} selects none of the pool's {all} devices (penstock devices shows what a query selects)"
    )]
    NoneSelected {
        /// Devices of the pool.
        all: usize,
    },
    /// Something with a file.
    #[error("{}: cannot {doing} it: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A part of Penstock, or something built with it, is not installed.
    #[error("{what} is not there; looked for it at {}; {remedy}", list(looked))]
    Missing {
        /// What.
        what: &'static str,
        /// Where it was looked for.
        looked: Vec<PathBuf>,
        /// What to do.
        remedy: &'static str,
    },
    /// A program of ours failed.
    #[error("{what} failed ({how})")]
    Program {
        /// Which.
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
    /// `penstock run` could not set up the pool.
    #[error("{0}")]
    Run(Box<Failure>),
    /// `penstock run` could not execute the program.
    #[error("{}: cannot run it: {source}", program.display())]
    Execute {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Failure {
    /// For `map_err`: what was tried with a file.
    pub fn file(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_path_buf(), doing, source }
    }

    /// The exit status of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Query(_) | Self::Argument { .. } => USAGE,
            Self::NoNodes { .. }
            | Self::NoneAnswers
            | Self::NoDevices
            | Self::NoneSelected { .. } => NO_NODE,
            Self::Run(_) | Self::Measure(_) => RUN_FAILED,
            Self::Execute { source, .. } if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Self::Execute { .. } => NOT_EXECUTABLE,
            _ => FAILED,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
