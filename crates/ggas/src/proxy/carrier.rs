//! What carries the bytes of a proxy to one other member and back: a socket, unless something else is built in.

use std::io::IoSlice;
use std::time::Instant;

use penstock_link::Stream;
use rustix::event::{PollFd, PollFlags};

use super::input::Broken;

/// A stream of bytes in each direction, in order and whole.
///
/// Nothing here waits but [`Carrier::finish`]. What is received is checked by who reads it: a carrier promises only that it comes from
/// the member that the handshake was with.
pub(crate) trait Carrier: Send {
    /// Takes what fits now; `None`: nothing does. Bytes that are taken may change afterwards.
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, Broken>;

    /// Receives what is there; `None`: nothing is. After the last byte of a member that has ended this is an error.
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken>;

    /// Adds what becomes ready when there is something to receive, or, with `sends`, room to send; `false`: that can not be slept on
    /// now, because something has come already, or nobody tells when there is room.
    fn watch<'a>(&'a mut self, sends: bool, fds: &mut Vec<PollFd<'a>>) -> bool;

    /// Whether the member leaves unanswered what was sent to it. May cost a system call.
    fn vanished(&self) -> bool;

    /// Breaks off, here and there.
    fn end(&mut self);

    /// Has what was taken arrive, as far as that is done until then. Nothing is sent or received any more.
    fn finish(&mut self, until: Instant);
}

impl Carrier for Stream {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, Broken> {
        Ok(self.send_now(pieces)?)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        Ok(self.recv_now(into)?)
    }

    fn watch<'a>(&'a mut self, sends: bool, fds: &mut Vec<PollFd<'a>>) -> bool {
        let out = if sends { PollFlags::OUT } else { PollFlags::empty() };
        fds.push(PollFd::new(self, PollFlags::IN | out));
        true
    }

    fn vanished(&self) -> bool {
        Self::vanished(self)
    }

    fn end(&mut self) {
        self.shutdown();
    }

    /// The system sends what it has taken, also after the socket is closed.
    fn finish(&mut self, _: Instant) {}
}
