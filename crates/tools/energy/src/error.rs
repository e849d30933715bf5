//! Errors of a measurement as a whole. A channel that cannot be read is not an error: see
//! [`crate::Reason`].

use std::io;
use std::path::PathBuf;

/// Reason why a measurement cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Functions were called in a wrong order.
    #[error("{0}")]
    Order(&'static str),
    /// A span of time that is negative, not a number, or too long.
    #[error("{what} must be from {min} to {max} s, not {given}")]
    Span {
        what: &'static str,
        /// Minimum, as a number of seconds.
        min: f64,
        /// Maximum, as a number of seconds.
        max: f64,
        /// The given number of seconds.
        given: f64,
    },
    /// The thread that samples channels cannot be started.
    #[error("the sampling thread cannot be started: {0}")]
    Thread(#[source] io::Error),
    /// The command cannot be run.
    #[error("{}: cannot run it: {source}", program.display())]
    Execute { program: PathBuf, source: io::Error },
    /// Waiting for the command failed.
    #[error("waiting for the command: {0}")]
    Wait(#[source] io::Error),
    /// The power model cannot be read.
    #[error("{}: {reason}", path.display())]
    Model { path: PathBuf, reason: String },
    /// Core-seconds cannot be read.
    #[error("core-seconds of {of}: {source}")]
    Cores {
        /// The process or host that they belong to.
        of: String,
        source: io::Error,
    },
}
