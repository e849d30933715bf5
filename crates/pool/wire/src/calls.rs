//! The table of all calls. One entry generates the opcode, the body of the frame, and the handler's
//! type. A receiver of one direction ([`to_worker`], [`to_client`], [`to_peer`], [`to_host`],
//! [`to_guest`]) does not compile without a handler for each of its calls.
//!
//! Calls are one-way unless they are a [`Request`]. A worker reports the failure of a one-way call
//! with the event that the call names ([`to_client::EventDone`]). If the call names no event, the
//! next [`to_worker::Finish`] of its queue reports the failure.

use std::fmt;

use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{Call, Frame, FrameError, Header, Payload, PayloadRule, Request};
use crate::id::{Id, kind};
use crate::limits;
use crate::space::SpaceFrame;

/// What a frame has besides the fields of its call.
pub struct Attached<'a> {
    pub waits: &'a [Id<kind::Event>],
    pub payload: &'a mut dyn Payload,
}

impl fmt::Debug for Attached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("waits", &self.waits).finish_non_exhaustive()
    }
}

/// Result of a handler. An error means that the peer broke the protocol or that the link broke, and
/// ends the session. A handler reports a failure of the call itself to the client.
pub type Served = Result<(), FrameError>;

/// Serves one call of a peer.
pub trait Serve<C: Call> {
    /// Executes `call`.
    ///
    /// # Errors
    /// See [`Served`].
    fn serve(&mut self, call: &C, with: Attached<'_>) -> Served;
}

mod define;
mod from_client;
mod from_worker;
mod show;
pub use crate::space::Triple;
use define::calls;
pub use from_client::to_worker;
pub use from_worker::{to_client, to_guest, to_host, to_peer};
use show::Show as _;
pub use show::Shown;

/// Returns the fields of a call of any direction as text, as [`to_worker::show`] does.
pub fn show(opcode: u16, body: &[u8]) -> Option<Shown> {
    to_worker::show(opcode, body)
        .or_else(|| to_client::show(opcode, body))
        .or_else(|| to_peer::show(opcode, body))
        .or_else(|| to_host::show(opcode, body))
        .or_else(|| to_guest::show(opcode, body))
}

#[cfg(test)]
mod tests;
