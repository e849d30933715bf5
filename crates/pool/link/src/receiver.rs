//! The receiving end of a link.

use std::fmt;
use std::sync::Arc;

use penstock_wire::id::kind;
use penstock_wire::limits::BODY_BYTES_MAX;
use penstock_wire::{Frame, FrameError, Header, Id, Payload};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::LinkError;
use crate::joint::Joint;
use crate::shared::RingIn;
use crate::silence;
use crate::socket::SocketIn;
use crate::wait::{Patience, Policy};

/// Result of a call of [`Receiver::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One frame was served.
    Frame,
    /// The patience ended before a frame came.
    TimedOut,
}

/// Receiving end of a link.
pub struct Receiver {
    joint: Arc<Joint>,
    input: In,
    check: fn(&Header) -> Result<(), FrameError>,
    /// Head of the frame being served.
    head: Vec<u8>,
    /// Whether a frame was left unfinished, so that the start of the next one is unknown.
    lost: bool,
}

#[derive(Debug)]
pub(crate) enum In {
    Socket(SocketIn),
    Ring(RingIn),
}

impl Receiver {
    pub(crate) fn new(
        joint: Arc<Joint>,
        input: In,
        check: fn(&Header) -> Result<(), FrameError>,
    ) -> Self {
        Self { joint, input, check, head: Vec::new(), lost: false }
    }

    /// Sets how this thread waits for a frame before it sleeps.
    pub fn set_policy(&mut self, policy: Policy) {
        match &mut self.input {
            In::Socket(socket) => socket.set_policy(policy),
            In::Ring(ring) => ring.set_policy(policy),
        }
    }

    /// Waits for one frame and calls `serve` with the frame and its payload. Payload bytes that
    /// `serve` leaves are skipped. `patience` applies to the frame's head: once a payload has
    /// begun, its end or the end of the link is awaited.
    ///
    /// # Errors
    /// The reason of the link's end, or [`LinkError::Closed`] if the peer hung up or this side
    /// closed the link and no more is known; otherwise the peer's violation of the protocol, or the
    /// error of `serve`. After an error the link cannot be used.
    pub fn receive(
        &mut self,
        patience: Patience,
        serve: &mut dyn FnMut(&Frame<'_>, &mut dyn Payload) -> Result<(), FrameError>,
    ) -> Result<Received, LinkError> {
        self.joint.check()?;
        if self.lost {
            return Err(self.joint.explained(LinkError::Closed));
        }
        let received = self.receive_one(patience, serve);
        self.lost = received.is_err();
        received.map_err(|error| self.joint.explained(error))
    }

    /// Notes that the peer sends beats, as a worker does to another one: the link has ended if
    /// nothing comes for a long time while this side looks.
    pub fn expect_beats(&self) {
        if let Some(silence_max) = silence::allowed() {
            self.joint.expect_beats(silence_max);
        }
    }

    fn receive_one(
        &mut self,
        patience: Patience,
        serve: &mut dyn FnMut(&Frame<'_>, &mut dyn Payload) -> Result<(), FrameError>,
    ) -> Result<Received, LinkError> {
        let joint = &self.joint;
        let mut bytes = [0; size_of::<Header>()];
        if !self.input.peek(joint, &mut bytes, patience)? {
            return Ok(Received::TimedOut);
        }
        let header: Header = zerocopy::transmute!(bytes);
        (self.check)(&header)?;
        let body = usize::from(header.body.get());
        if body > BODY_BYTES_MAX {
            return Err(FrameError::WrongBody {
                name: "a call",
                got: header.body.get(),
                expected: BODY_BYTES_MAX,
            }
            .into());
        }
        // At most 16 + 512 + 8 x 65,535 bytes.
        let size =
            bytes.len() + body + usize::from(header.waits.get()) * size_of::<Id<kind::Event>>();
        self.head.resize(size, 0);
        if !self.input.peek(joint, &mut self.head, patience)? {
            return Ok(Received::TimedOut);
        }
        self.input.skip(joint, size)?;
        // The header is not read from `head`: a peer that shares the memory may have changed it
        // since it was checked.
        let rest = self.head.get(bytes.len()..).and_then(|rest| rest.split_at_checked(body));
        let (body, waits) = rest.ok_or(FrameError::Broken)?;
        let waits = <[Id<kind::Event>]>::ref_from_bytes(waits).map_err(|_| FrameError::Broken)?;
        let frame = Frame { header, body, waits };
        if let Some(trace) = &joint.trace {
            trace.received(&[&bytes, body, waits.as_bytes()]);
        }

        let mut payload = LinkPayload {
            input: &mut self.input,
            joint,
            left: header.payload.get(),
            failure: None,
        };
        let served = serve(&frame, &mut payload);
        let LinkPayload { left, failure, .. } = payload;
        if let Some(failure) = failure {
            return Err(failure);
        }
        served?;
        if left > 0 {
            self.input.discard(joint, left)?;
        }
        Ok(Received::Frame)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("joint", &self.joint).finish_non_exhaustive()
    }
}

impl In {
    /// Waits for `into.len()` bytes and copies them, but keeps them. Returns `false` if the
    /// patience ended.
    fn peek(
        &mut self,
        joint: &Joint,
        into: &mut [u8],
        patience: Patience,
    ) -> Result<bool, LinkError> {
        match self {
            Self::Socket(socket) => match socket.peek(joint, into.len(), patience)? {
                Some(bytes) => {
                    into.copy_from_slice(bytes);
                    Ok(true)
                }
                None => Ok(false),
            },
            Self::Ring(ring) => {
                let come = ring.wait(joint, into.len(), patience)?;
                if come {
                    ring.peek(0, into);
                }
                Ok(come)
            }
        }
    }

    fn skip(&mut self, joint: &Joint, bytes: usize) -> Result<(), LinkError> {
        match self {
            Self::Socket(socket) => {
                socket.skip(bytes);
                Ok(())
            }
            Self::Ring(ring) => ring.skip(joint, bytes),
        }
    }

    fn read(&mut self, joint: &Joint, into: &mut [u8]) -> Result<(), LinkError> {
        match self {
            Self::Socket(socket) => socket.read(joint, into),
            Self::Ring(ring) => ring.read(joint, into),
        }
    }

    fn discard(&mut self, joint: &Joint, bytes: u64) -> Result<(), LinkError> {
        match self {
            Self::Socket(socket) => socket.discard(joint, bytes),
            Self::Ring(ring) => ring.discard(joint, bytes),
        }
    }
}

/// Payload of the frame being served, still on the link.
struct LinkPayload<'a> {
    input: &'a mut In,
    joint: &'a Joint,
    left: u64,
    /// Why the link broke; the handler gets only [`FrameError::Broken`].
    failure: Option<LinkError>,
}

impl Payload for LinkPayload<'_> {
    fn left(&self) -> u64 {
        self.left
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        if self.failure.is_some() {
            return Err(FrameError::Broken);
        }
        let bytes = into.len() as u64;
        if bytes > self.left {
            return Err(FrameError::PayloadTooShort);
        }
        match self.input.read(self.joint, into) {
            Ok(()) => {
                self.left -= bytes;
                if let Some(trace) = &self.joint.trace {
                    trace.received_payload(into);
                }
                Ok(())
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(FrameError::Broken)
            }
        }
    }
}
