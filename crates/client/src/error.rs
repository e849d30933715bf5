//! What can go wrong between a face and the pool.

use std::sync::Arc;

use penstock_link::LinkError;
use penstock_wire::{FrameError, Status};

/// An error of the pool.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The node's worker is gone, and with it all of the session's objects.
    #[error("node {node} is lost: {reason}")]
    Lost {
        /// The node.
        node: Arc<str>,
        /// What was seen of it.
        reason: Arc<str>,
    },
    /// The worker or its driver refused a call.
    #[error("node {node}: {status}")]
    Refused {
        /// The node.
        node: Arc<str>,
        /// The driver's code.
        status: Status,
    },
    /// A memory object's content went with the only node that had it.
    #[error(
        "the current content of a memory object was on a node that is lost, or did not come from it"
    )]
    ContentLost,
    /// A node could not be reached.
    #[error("node {address} does not answer: {reason}")]
    Unreachable {
        /// Its address, as configured.
        address: Arc<str>,
        /// Why.
        reason: Arc<LinkError>,
    },
    /// A symmetric heap, or a launch on one, that can not be.
    #[error("{why}")]
    Heap {
        /// The code for it.
        status: Status,
        /// What can not be, where, and what to do.
        why: Arc<str>,
    },
    /// A call is over a limit of the protocol.
    #[error(transparent)]
    Frame(FrameError),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(Arc<str>),
}

impl Error {
    /// The status code that tells this error to a program.
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

/// A symmetric heap, or a launch on one, that cannot be.
pub(crate) fn refused(why: &str) -> Error {
    Error::Heap { status: Status::INVALID_OPERATION, why: why.into() }
}
