//! Transports of bytes between ranks. They share one trait: MPI (`mpi`), and ranks that are threads
//! of one process (`loopback`, for tests).
//!
//! There are two kinds of traffic. *Control* messages are small and come from any rank at any time;
//! those from one rank to another arrive in the order in which they were sent. *Data* travels in
//! streams whose sizes both ends know, directly between memory that the callers name; pieces of one
//! stream arrive in order.

pub mod alone;
pub mod loopback;
pub mod mpi;

use crate::command::{Rank, Stream};

/// Memory that the transport reads or writes until it reports the operation's token.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: *mut u8,
    /// Its length in bytes.
    pub length: usize,
}

impl Span {
    /// Returns a span of this process's memory.
    pub fn of_address(address: u64, size: u64) -> Self {
        let address = usize::try_from(address).unwrap_or_default();
        Self {
            start: std::ptr::with_exposed_provenance_mut(address),
            length: usize::try_from(size).unwrap_or_default(),
        }
    }

    /// Returns the addresses of its bytes.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start.addr()..self.start.addr().saturating_add(self.length)
    }

    /// Returns the address of its first byte, for [`Span::of_address`].
    pub fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }
}

// SAFETY: a span is an address and a length. Its maker keeps the memory valid until the token is
// reported.
unsafe impl Send for Span {}

/// Identifies an operation of one transport. The caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// An event of the transport.
#[derive(Debug)]
pub enum TransportEvent {
    /// The memory of a send may be used again.
    Sent(Token),
    /// This number of bytes has arrived. If it is less than the span's length, the sender broke the
    /// stream off.
    Received(Token, usize),
    /// A control message from a rank.
    Control(Rank, Vec<u8>),
    /// A rank is lost, for this reason. Its operations end without further reports.
    Lost(Rank, String),
}

/// The transport of one rank.
pub trait Transport: Send + std::fmt::Debug {
    fn rank(&self) -> Rank;

    fn size(&self) -> u32;

    /// Sends a control message. Never blocks.
    fn control(&mut self, to: Rank, bytes: Vec<u8>);

    /// Sends a piece of a stream. Never blocks. A piece of 0 bytes breaks the stream off for the
    /// receiver.
    ///
    /// # Safety
    /// The span stays readable and unchanged until [`TransportEvent::Sent`] or
    /// [`TransportEvent::Lost`] is reported.
    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token);

    /// Receives the next piece of a stream. Never blocks.
    ///
    /// # Safety
    /// The span stays writable, and nobody else uses it, until [`TransportEvent::Received`] or
    /// [`TransportEvent::Lost`] is reported.
    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token);

    /// Makes progress, and appends what has happened. Never blocks.
    fn poll(&mut self, events: &mut Vec<TransportEvent>);

    /// Treats a rank that sends invalid messages as lost, and reports [`TransportEvent::Lost`].
    fn give_up(&mut self, rank: Rank, reason: &str);

    /// Notes that another connection of this rank has ended, so that it may be lost.
    fn doubt(&mut self, _rank: Rank) {}

    /// Whether messages of other ranks or own operations only make progress if [`Transport::poll`]
    /// is called repeatedly. If not, the bell of [`Transport::wake_with`] rings.
    fn needs_polling(&self) -> bool;

    /// Whether nothing is under way here, so that only a control message of another rank can change
    /// anything.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Sets the bell to ring when something has happened.
    fn wake_with(&mut self, wake: crate::doorbell::Doorbell);
}
