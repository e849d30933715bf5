//! How the processes of a host path exchange bytes.

pub mod mpi;
pub mod tcp;

use crate::error::Result;
use crate::host::memory::Span;

/// One process's way to the others. What is started is waited for in the order of its start, for each of the others.
pub trait Wire: std::fmt::Debug {
    /// Who this is.
    fn rank(&self) -> u32;
    /// How many there are.
    fn ranks(&self) -> u32;
    /// What it is, with its version.
    fn name(&self) -> String;
    /// Sends, and waits until the bytes may be changed.
    ///
    /// # Errors
    /// The other has gone.
    fn send(&mut self, to: u32, bytes: Span) -> Result<()>;
    /// Receives, and waits until the bytes are there.
    ///
    /// # Errors
    /// The other has gone.
    fn receive(&mut self, from: u32, bytes: Span) -> Result<()>;
    /// Starts to send: the bytes stay as they are until it was waited for.
    ///
    /// # Errors
    /// The other has gone.
    fn start_send(&mut self, to: u32, bytes: Span) -> Result<Ticket>;
    /// Starts to receive: the bytes are not touched until it was waited for.
    ///
    /// # Errors
    /// The other has gone.
    fn start_receive(&mut self, from: u32, bytes: Span) -> Result<Ticket>;
    /// Waits.
    ///
    /// # Errors
    /// The other has gone.
    fn wait(&mut self, ticket: Ticket) -> Result<()>;
    /// Waits until all are here.
    ///
    /// # Errors
    /// One of the others has gone.
    fn barrier(&mut self) -> Result<()>;
    /// From now on, who waits spins, or sleeps. Without meaning where that is not this wire's choice.
    ///
    /// # Errors
    /// A system call.
    fn set_spins(&mut self, spins: bool) -> Result<()>;
    /// Ends in order. Nothing else is called after it.
    ///
    /// # Errors
    /// The others do not.
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Something that was started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub(crate) id: u64,
    /// What is still to be received, and from whom, where that is done by who waits.
    pub(crate) receive: Option<(u32, Span)>,
}
