//! The transport of a proxy's bytes to and from one other member: a socket, unless UCX is built in.

use std::io::IoSlice;
use std::time::Instant;

use penstock_link::{LinkError, Stream};
use rustix::event::{PollFd, PollFlags};

use crate::error::Refusal;

/// Reason why nothing more can be sent or received.
#[derive(Debug)]
pub(crate) enum CarrierError {
    /// The member has ended or left, or its carrier has failed.
    Closed,
    /// The bytes violate the protocol, or their target is outside of our parts.
    Protocol,
}

impl From<LinkError> for CarrierError {
    fn from(_: LinkError) -> Self {
        Self::Closed
    }
}

impl From<Refusal> for CarrierError {
    fn from(_: Refusal) -> Self {
        Self::Protocol
    }
}

/// Reliable stream of bytes in each direction.
///
/// Only [`Carrier::finish`] blocks. The reader checks what it receives: a carrier guarantees only
/// that the bytes come from the member of the handshake.
pub(crate) trait Carrier: Send {
    /// Takes what fits now; returns `None` if nothing fits. Taken bytes may change afterwards.
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, CarrierError>;

    /// Receives what is there; returns `None` if nothing is. Fails at the end of the member's
    /// bytes.
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, CarrierError>;

    /// Adds descriptors that become ready when there is something to receive or, with `sends`, room
    /// to send. Returns `false` if the caller must not sleep on them, because something has already
    /// come or nothing reports room.
    fn watch<'a>(&'a mut self, sends: bool, fds: &mut Vec<PollFd<'a>>) -> bool;

    /// Returns whether the member leaves what was sent unanswered. May cost a system call.
    fn vanished(&self) -> bool;

    /// Breaks the connection on both sides.
    fn end(&mut self);

    /// Waits at most until `until` for the taken bytes to arrive. Ends sending and receiving.
    fn finish(&mut self, until: Instant);
}

impl Carrier for Stream {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, CarrierError> {
        Ok(self.send_now(pieces)?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, CarrierError> {
        Ok(self.recv_now(into)?)
    }

    fn watch<'a>(&'a mut self, sends: bool, fds: &mut Vec<PollFd<'a>>) -> bool {
        let out = if sends { PollFlags::OUT } else { PollFlags::empty() };
        // An encrypted stream may have bytes while its socket has none.
        let has_waiting = self.has_waiting();
        fds.push(PollFd::new(self, PollFlags::IN | out));
        !has_waiting
    }

    fn vanished(&self) -> bool {
        Self::vanished(self)
    }

    fn end(&mut self) {
        self.shutdown();
    }

    /// Does nothing, because the operating system still sends the bytes that it has taken after the
    /// socket is closed.
    fn finish(&mut self, _: Instant) {}
}
