//! How the processes of a host path exchange bytes.

pub mod mpi;
pub mod tcp;

use crate::error::Result;
use crate::host::memory::Span;

/// A process's connection to the others. Per peer, operations are waited for in the order in which
/// they were started.
pub trait Wire: std::fmt::Debug {
    fn rank(&self) -> u32;
    fn ranks(&self) -> u32;
    /// Name and version of the transport.
    fn name(&self) -> String;
    /// Sends, and waits until the bytes may be changed.
    ///
    /// # Errors
    /// Returns an error if the peer has gone.
    fn send(&mut self, to: u32, bytes: Span) -> Result<()>;
    /// Receives, and waits until the bytes have arrived.
    ///
    /// # Errors
    /// Returns an error if the peer has gone.
    fn receive(&mut self, from: u32, bytes: Span) -> Result<()>;
    /// Starts to send. The bytes must not change until the ticket has been waited for.
    ///
    /// # Errors
    /// Returns an error if the peer has gone.
    fn start_send(&mut self, to: u32, bytes: Span) -> Result<Ticket>;
    /// Starts to receive. The bytes must not be used until the ticket has been waited for.
    ///
    /// # Errors
    /// Returns an error if the peer has gone.
    fn start_receive(&mut self, from: u32, bytes: Span) -> Result<Ticket>;
    /// Waits for an operation that was started.
    ///
    /// # Errors
    /// Returns an error if the peer has gone.
    fn wait(&mut self, ticket: Ticket) -> Result<()>;
    /// Waits until all processes are here.
    ///
    /// # Errors
    /// Returns an error if another process has gone.
    fn barrier(&mut self) -> Result<()>;
    /// Selects whether waiting threads spin or sleep, if that is this wire's choice.
    ///
    /// # Errors
    /// Returns an error if a system call fails.
    fn set_spins(&mut self, spins: bool) -> Result<()>;
    /// Closes the connection. No other function is called afterwards.
    ///
    /// # Errors
    /// Returns an error if the other processes do not close theirs.
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An operation that was started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub(crate) id: u64,
    /// Peer and bytes of a receive operation that only runs when it is waited for.
    pub(crate) receive: Option<(u32, Span)>,
}
