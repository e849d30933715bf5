//! What can go wrong with a measurement as a whole. That a channel cannot be read is no error: see [`crate::Reason`].

use std::io;
use std::path::PathBuf;

/// Why a measurement cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The calls came in a wrong order.
    #[error("{0}")]
    Order(&'static str),
    /// A span of time that is negative, not a number, or too long.
    #[error("{what} must be from {min} to {max} s, not {given}")]
    Span {
        /// Which.
        what: &'static str,
        /// Least, in seconds.
        min: f64,
        /// Most, in seconds.
        max: f64,
        /// What was given, in seconds.
        given: f64,
    },
    /// The thread that reads channels from time to time does not start.
    #[error("the thread that samples does not start: {0}")]
    Thread(#[source] io::Error),
    /// The command cannot be run.
    #[error("{}: cannot run it: {source}", program.display())]
    Execute {
        /// Its program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Waiting for the command failed.
    #[error("waiting for the command: {0}")]
    Wait(#[source] io::Error),
    /// The power model cannot be read.
    #[error("{}: {reason}", path.display())]
    Model {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Core-seconds cannot be read.
    #[error("core-seconds of {of}: {source}")]
    Cores {
        /// Whose.
        of: String,
        /// Why.
        source: io::Error,
    },
}
