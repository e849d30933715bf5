//! Reasons why a host refuses.

use std::io;

use penstock_link::LinkError;

use super::meeting::MeetingError;
use crate::error::HeapError;

/// Reason why a host cannot form, start, reset or find a heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    #[error("there is no such heap")]
    Unknown,
    /// The host has as many heaps as it allows.
    #[error("the session has {max} heaps; release one first")]
    TooManyHeaps { max: usize },
    /// As many threads are at work as the host allows.
    #[error("more than {max} members of heaps meet at this moment; make heaps one after the other")]
    Busy { max: usize },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The members did not meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// A device cannot use the heap's memory; the sentence says why.
    #[error("{0}")]
    Device(String),
}

impl From<LinkError> for HostError {
    fn from(error: LinkError) -> Self {
        Self::Heap(error.into())
    }
}
