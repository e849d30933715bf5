//! Two doorbells over one connection: one wakes the peer's reader, the other one its writer.
//!
//! A Unix socket can carry a second socket for the second doorbell. A connection between a guest
//! and its host cannot. So each byte says which thread it wakes. Two threads of one side can wait
//! for the connection at the same time, and one takes the byte that is meant for the other. That
//! thread passes the byte on, through an eventfd that the other thread waits for as well:
//!
//! ```text
//! byte for the writer -> connection -+-> the writer takes it
//!                                    +-> the reader takes it -> eventfd of the writer
//! ```
//! So no wake-up is lost: a byte is in the connection, or in the hands of a thread that is about to
//! pass it on, or in the eventfd. A thread that sleeps waits for the connection and its eventfd.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use zeroize::Zeroizing;

use crate::error::LinkError;
use crate::standard::beyond_standard;
use crate::transport::contract::Bytes;
use crate::transport::syscall::{self, Readiness};

/// Doorbell bytes taken at once. More than a few come only from needless rings.
const BYTES_MAX: usize = 64;

/// Thread that a doorbell wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bell {
    Reader,
    Writer,
}

impl Bell {
    fn byte(self) -> u8 {
        match self {
            Self::Reader => b'R',
            Self::Writer => b'W',
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Reader => Self::Writer,
            Self::Writer => Self::Reader,
        }
    }
}

/// The doorbells of one side.
#[derive(Debug)]
pub(super) struct Bells {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Bells {
    pub(super) fn new() -> Result<Self, LinkError> {
        let make = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .and_then(beyond_standard)
                .map_err(LinkError::system("making a doorbell"))
        };
        Ok(Self { reader: make()?, writer: make()? })
    }

    fn passed_on(&self, bell: Bell) -> &OwnedFd {
        match bell {
            Bell::Reader => &self.reader,
            Bell::Writer => &self.writer,
        }
    }

    /// Wakes the peer's thread. Returns `None` if nothing fits into the connection. That happens
    /// only if the peer takes nothing: a thread gets one byte for each sleep that it announces, and
    /// takes what has come before it announces the next one.
    pub(super) fn ring(&self, over: &dyn Bytes, bell: Bell) -> Result<Option<usize>, LinkError> {
        over.send_now(&[IoSlice::new(&[bell.byte()])])
    }

    /// Takes the wake-ups that have come, and passes on those for the other thread. Returns `None`
    /// if there are none for this thread.
    pub(super) fn take(&self, over: &dyn Bytes, bell: Bell) -> Result<Option<usize>, LinkError> {
        let mut is_rung = rustix::io::read(self.passed_on(bell), &mut [0_u8; 8]).is_ok();
        let mut bytes = [0; BYTES_MAX];
        let got = over.recv_now(&mut bytes)?.unwrap_or(0);
        let mut is_junk = false;
        let mut is_for_other = false;
        for &byte in bytes.iter().take(got) {
            is_rung |= byte == bell.byte();
            is_for_other |= byte == bell.other().byte();
            is_junk |= byte != bell.byte() && byte != bell.other().byte();
        }
        if is_for_other {
            // If the counter is full, the eventfd is readable already.
            _ = rustix::io::write(self.passed_on(bell.other()), &1_u64.to_ne_bytes());
        }
        if is_junk {
            return Err(LinkError::Ring("the peer rang a doorbell that does not exist"));
        }
        Ok(is_rung.then_some(1))
    }

    /// Sleeps until a wake-up or a hang-up may have come. Returns `false` if the deadline passed.
    pub(super) fn wait(
        &self,
        over: &dyn Bytes,
        bell: Bell,
        deadline: Option<Instant>,
    ) -> Result<bool, LinkError> {
        let fds = [over.as_fd(), self.passed_on(bell).as_fd()];
        syscall::wait_any(&fds, deadline)
    }
}

/// One of the two doorbells, in place of the bytes of the connection that carries both.
#[derive(Debug)]
pub(super) struct Rung {
    pub(super) bells: Arc<Bells>,
    pub(super) bell: Bell,
    pub(super) over: Arc<dyn Bytes>,
}

impl AsFd for Rung {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }
}

impl Bytes for Rung {
    fn send_now(&self, _pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.bells.ring(&*self.over, self.bell)
    }

    fn recv_now(&self, _into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.bells.take(&*self.over, self.bell)
    }

    fn has_waiting(&self) -> bool {
        self.over.has_waiting()
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        match what {
            Readiness::Readable => self.bells.wait(&*self.over, self.bell, deadline),
            Readiness::Writable => self.over.wait(what, deadline),
        }
    }

    fn shutdown(&self) {
        self.over.shutdown();
    }

    fn why_hung_up(&self) -> LinkError {
        self.over.why_hung_up()
    }

    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError> {
        self.over.hand_over()
    }
}
