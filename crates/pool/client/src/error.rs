//! Errors between a face and the pool.

use std::sync::Arc;

use penstock_link::LinkError;
use penstock_wire::{FrameError, Status};

/// An error of the pool.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The node's worker is gone, and with it all objects of the session.
    #[error("node {node} is lost: {reason}")]
    Lost {
        node: Arc<str>,
        /// Reason of the loss, as the client saw it.
        reason: Arc<str>,
    },
    /// The worker or its driver refused a call.
    #[error("node {node}: {status}")]
    Refused { node: Arc<str>, status: Status },
    /// The current content of a memory object was on a lost node, or a transfer from there failed.
    #[error(
        "the current content of a memory object was on a node that is lost, or did not come from it"
    )]
    ContentLost,
    /// A node could not be reached.
    #[error("node {address} does not answer: {reason}")]
    Unreachable {
        /// Address of the node, as configured.
        address: Arc<str>,
        reason: Arc<LinkError>,
    },
    /// A symmetric heap, or a launch on one, is impossible.
    #[error("{why}")]
    Heap {
        /// Status code for the program.
        status: Status,
        /// A sentence that says what is impossible, where, and what to do.
        why: Arc<str>,
    },
    /// A call exceeds a limit of the protocol.
    #[error(transparent)]
    Frame(FrameError),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(Arc<str>),
}

impl Error {
    /// Returns the status code that tells this error to a program.
    pub fn status(&self) -> Status {
        match self {
            Self::Refused { status, .. } | Self::Heap { status, .. } => *status,
            Self::Lost { .. } | Self::ContentLost | Self::Unreachable { .. } => Status::NODE_LOST,
            Self::Frame(_) => Status::OUT_OF_RESOURCES,
            Self::Config(_) => Status::INVALID_VALUE,
        }
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

/// The result of a call into the pool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns the error for a symmetric heap, or a launch on one, that is impossible.
pub(crate) fn refused(why: &str) -> Error {
    Error::Heap { status: Status::INVALID_OPERATION, why: why.into() }
}
