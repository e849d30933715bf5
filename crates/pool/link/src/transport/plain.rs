//! Bytes that go through their socket as they are: those of every transport, below all layers.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zeroize::Zeroizing;

use super::contract::Bytes;
use super::syscall::{self, Readiness};
use crate::error::LinkError;

#[derive(Debug)]
pub(super) struct Plain {
    socket: OwnedFd,
    /// Set whenever bytes come, for a [`super::contract::Liveness`] that wants to know it.
    heard: Option<Arc<AtomicBool>>,
}

impl Plain {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, heard: None }
    }

    pub(super) fn telling(socket: OwnedFd, heard: Arc<AtomicBool>) -> Self {
        Self { socket, heard: Some(heard) }
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Bytes for Plain {
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        syscall::send_now(self.as_fd(), pieces)
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let received = syscall::recv_now(self.as_fd(), into)?;
        if let (Some(_), Some(heard)) = (received, &self.heard) {
            heard.store(true, Ordering::Relaxed);
        }
        Ok(received)
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        syscall::wait_fd(self.as_fd(), what, deadline)
    }

    fn shutdown(&self) {
        syscall::shutdown(self.as_fd());
    }

    fn why_hung_up(&self) -> LinkError {
        LinkError::Closed
    }

    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError> {
        Ok(None)
    }
}
