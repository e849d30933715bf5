//! Sending over a session's link.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_link::{LinkError, Sender};
use penstock_wire::id::kind;
use penstock_wire::{Call, Id};

use super::Session;
use crate::error::Result;
use crate::summary::Tally;

/// What a sender says of a call.
type Sent = std::result::Result<(), LinkError>;

impl Session {
    /// Sends a call. It may wait in a batch until [`Session::flush`] or any wait.
    ///
    /// # Errors
    /// If the session is lost, or the call exceeds a limit.
    pub fn send<C: Call>(&self, call: &C, waits: &[Id<kind::Event>], payload: &[u8]) -> Result<()> {
        self.send_with::<C>(payload.len() as u64, |sender| sender.send(call, waits, payload))
    }

    /// Has `send` send a call with this number of bytes, as [`Session::send`].
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(crate) fn send_with<C: Call>(
        &self,
        bytes: u64,
        send: impl FnOnce(&Sender) -> Sent,
    ) -> Result<()> {
        penstock_trial::delay(penstock_trial::Place::ClientSends);
        let sent = send(&self.sender);
        self.end_relief();
        if let Some(tally) = self.tally() {
            count::<C>(tally, bytes, sent.is_ok());
        }
        sent.map_err(|error| self.not_sent(&error))
    }

    /// As [`Session::send`] and [`Session::flush`], for a thread that must not wait. Returns
    /// `false`, without sending, if it would have to wait.
    pub(crate) fn send_at_once<C: Call>(&self, call: &C, payload: &[u8]) -> bool {
        match self.sender.try_send(call, &[], payload) {
            Ok(true) => {
                // The thread that receives notices a failure.
                _ = self.sender.flush_soon();
                true
            }
            Ok(false) => false,
            // The session is lost, and nobody is left to tell.
            Err(_) => true,
        }
    }

    /// Has `send` send a command that was held back, with bytes of the program's memory. A thread
    /// that loses the session waits until `send` has returned.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(crate) fn send_held<C: Call>(
        &self,
        bytes: u64,
        send: impl FnOnce(&Sender) -> Sent,
    ) -> Result<()> {
        self.send_with::<C>(bytes, |sender| {
            // In a forked child the lock may never be released.
            sender.check()?;
            let _departing = self.departing.lock();
            // If the link has ended before the lock was taken, this takes no byte.
            send(sender)
        })
    }

    /// Sends all batched calls to the worker.
    ///
    /// # Errors
    /// If the session is lost.
    pub fn flush(&self) -> Result<()> {
        let flushed = self.sender.flush();
        self.end_relief();
        if let Some(tally) = self.tally() {
            tally.add_room_wait();
        }
        flushed.map_err(|error| self.lose(&error))
    }

    /// Has the session's own thread receive while a sender waits for room. The worker may take
    /// nothing until the client has taken what the worker has sent, such as a gigabyte of reads
    /// that no thread waits for yet.
    pub(super) fn relieve(self: &Arc<Self>) {
        if !self.relieved.swap(true, Ordering::AcqRel) {
            self.add_interest();
        }
    }

    fn end_relief(&self) {
        if self.relieved.load(Ordering::Relaxed) && self.relieved.swap(false, Ordering::AcqRel) {
            self.drop_interest();
        }
    }
}

/// Counts a call with this number of bytes.
// Apart, so that programs without a summary have only the question whether there is one.
#[inline(never)]
fn count<C: Call>(tally: &Tally, bytes: u64, is_sent: bool) {
    tally.add_room_wait();
    if is_sent {
        tally.sent::<C>(bytes);
    }
}
