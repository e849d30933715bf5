//! Bytes between ranks. One trait; behind it MPI (`mpi`), and ranks that are threads of one process (`loopback`, for tests).
//!
//! Two kinds of traffic. *Control* messages are small, come from anyone at any time, and arrive in the order in which one
//! rank sent them to another. *Data* travel in streams whose sizes both ends know, straight from and into memory that the
//! caller names; pieces of one stream arrive in order.

pub mod alone;
pub mod loopback;
pub mod mpi;

use crate::command::{Rank, Stream};

/// Memory that the transport reads or writes until it reports the operation's token.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First byte.
    pub start: *mut u8,
    /// How many.
    pub length: usize,
}

// SAFETY: a span is an address and a length; whoever makes one keeps the memory until the token is reported.
unsafe impl Send for Span {}

/// Tells operations of one transport apart; chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Happening {
    /// The bytes of a send may be used again.
    Sent(Token),
    /// So many bytes have arrived. Fewer than the span has: the sender broke the stream off.
    Received(Token, usize),
    /// A control message.
    Control(Rank, Vec<u8>),
    /// A rank is gone: its operations end here, none will be reported again.
    Lost(Rank, String),
}

/// One rank's way to the others.
pub trait Transport: Send + std::fmt::Debug {
    /// Who this is.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// Sends a control message. Never blocks.
    fn control(&mut self, to: Rank, bytes: Vec<u8>);

    /// Sends a piece of a stream. Never blocks. A piece of 0 bytes breaks the stream off for the receiver.
    ///
    /// # Safety
    /// The span is readable, and its bytes do not change, until [`Happening::Sent`] or [`Happening::Lost`] is reported.
    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token);

    /// Receives the next piece of a stream. Never blocks.
    ///
    /// # Safety
    /// The span is writable, and nobody else uses it, until [`Happening::Received`] or [`Happening::Lost`] is reported.
    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token);

    /// Moves things on, and tells what happened. Never blocks.
    fn poll(&mut self, happened: &mut Vec<Happening>);

    /// What this rank says makes no sense: it is taken for lost, as one that has ended, and [`Happening::Lost`] is reported.
    fn give_up(&mut self, rank: Rank, reason: &str);

    /// This rank may be gone: its connection for something else has ended.
    fn doubt(&mut self, _rank: Rank) {}

    /// Whether something can happen only if [`Transport::poll`] is called again and again: messages of others, or own
    /// operations. Where false, [`Transport::wake_with`] tells.
    fn needs_polling(&self) -> bool;

    /// Whether nothing is under way here: only a control message of another rank can make something happen.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Whom to wake when something has happened.
    fn wake_with(&mut self, wake: crate::doorbell::Doorbell);
}
