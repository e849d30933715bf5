//! The frame: a fixed header, the call's body, its wait list, and the payload beside it.
//!
//! ```text
//! | Header (16 B) | body (fixed by the opcode) | wait list (8 B each) | payload (streamed, never copied into the frame) |
//! ```

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::id::{Id, kind};
use crate::limits::{BODY_BYTES_MAX, STREAM_BYTES_MAX, WAITS_MAX};

/// What stands in front of every call.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct Header {
    /// Which call, see [`crate::calls`].
    pub opcode: U16,
    /// Size of the body, in bytes; it must be what the opcode says.
    pub body: U16,
    /// Number of events in the wait list.
    pub waits: U16,
    /// 0; for later use.
    pub reserved: U16,
    /// Size of the payload, in bytes.
    pub payload: U64,
}

const _: () = assert!(size_of::<Header>() == 16);

/// What payload a call may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// None at all.
    None,
    /// At most so many bytes, which the receiver takes into memory whole.
    UpTo(u64),
    /// Any number of bytes, which the receiver passes on piece by piece.
    Stream,
}

impl PayloadRule {
    /// The most bytes that this rule allows.
    pub const fn bytes_max(self) -> u64 {
        match self {
            Self::None => 0,
            Self::UpTo(max) => max,
            Self::Stream => STREAM_BYTES_MAX,
        }
    }
}

/// One call of the protocol: its body is `Self`.
pub trait Call:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + std::fmt::Debug
{
    /// Its number on the wire.
    const OPCODE: u16;
    /// Its name, for logs.
    const NAME: &'static str;
    /// What payload it may have.
    const PAYLOAD: PayloadRule;

    /// The header in front of this call.
    ///
    /// # Errors
    /// When wait list or payload are over their limits.
    fn header(waits: usize, payload: u64) -> Result<Header, FrameError> {
        const { assert!(size_of::<Self>() <= BODY_BYTES_MAX) };
        let waits = u16::try_from(waits)
            .map_err(|_| FrameError::TooManyWaits { count: waits, max: WAITS_MAX })?;
        check_payload(Self::NAME, Self::PAYLOAD, payload)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a body is at most BODY_BYTES_MAX, asserted above"
        )]
        let body = size_of::<Self>() as u16;
        Ok(Header {
            opcode: U16::new(Self::OPCODE),
            body: U16::new(body),
            waits: U16::new(waits),
            reserved: U16::ZERO,
            payload: U64::new(payload),
        })
    }
}

/// A call that is answered with a [`crate::calls::Reply`] that carries the same request id.
pub trait Request: Call {
    /// What the reply's payload holds when its status is a success.
    type Reply: serde::Serialize + serde::de::DeserializeOwned;
    /// Sets the id by which the reply is known.
    fn set_request(&mut self, request: Id<kind::Request>);
}

/// A frame as it was received, but for its payload.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The header, already checked against its limits.
    pub header: Header,
    /// The call's body.
    pub body: &'a [u8],
    /// The entries of the wait list, see [`Id::of_entry`].
    pub waits: &'a [Id<kind::Event>],
}

impl Header {
    /// Checks a header from a peer against the entry of the table that its opcode names.
    ///
    /// # Errors
    /// Names what is wrong with it.
    pub fn check(
        &self,
        name: &'static str,
        body: usize,
        rule: PayloadRule,
    ) -> Result<(), FrameError> {
        if usize::from(self.body.get()) != body {
            return Err(FrameError::WrongBody { name, got: self.body.get(), expected: body });
        }
        if self.reserved.get() != 0 {
            return Err(FrameError::Reserved { name });
        }
        check_payload(name, rule, self.payload.get())
    }
}

fn check_payload(name: &'static str, rule: PayloadRule, payload: u64) -> Result<(), FrameError> {
    if payload > rule.bytes_max() {
        return Err(FrameError::PayloadTooLarge { name, got: payload, max: rule.bytes_max() });
    }
    Ok(())
}

/// The payload of a frame being served: bytes that are still on the link. What a handler leaves is skipped.
pub trait Payload {
    /// Bytes left.
    fn left(&self) -> u64;

    /// Fills `into` with the next bytes.
    ///
    /// # Errors
    /// When fewer are left, or the link broke.
    fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError>;

    /// Takes all that is left into memory.
    ///
    /// # Errors
    /// As [`Payload::read`]. The table's rule for the call has bounded the size.
    fn read_all(&mut self) -> Result<Vec<u8>, FrameError> {
        let left = usize::try_from(self.left()).map_err(|_| FrameError::PayloadTooLarge {
            name: "payload",
            got: self.left(),
            max: usize::MAX as u64,
        })?;
        let mut bytes = vec![0; left];
        self.read(&mut bytes)?;
        Ok(bytes)
    }
}

/// A payload in memory, for tests and for calls that a process makes to itself.
impl Payload for &[u8] {
    fn left(&self) -> u64 {
        self.len() as u64
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        let (now, rest) = self.split_at_checked(into.len()).ok_or(FrameError::PayloadTooShort)?;
        into.copy_from_slice(now);
        *self = rest;
        Ok(())
    }
}

/// What a peer can do wrong in a frame. Each ends its session, and nothing else.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// An opcode that this side does not serve.
    #[error("the peer sent a call with the unknown opcode {0:#06x}")]
    UnknownOpcode(u16),
    /// The body has another size than the table says.
    #[error("the peer sent {name} with a body of {got} bytes; it has {expected}")]
    WrongBody {
        /// The call.
        name: &'static str,
        /// Size sent.
        got: u16,
        /// Size of the body in the table.
        expected: usize,
    },
    /// A reserved field is not zero.
    #[error("the peer sent {name} with a reserved field that is not zero")]
    Reserved {
        /// The call.
        name: &'static str,
    },
    /// Too many events to wait for.
    #[error("{count} events in a wait list; at most {max} fit one call")]
    TooManyWaits {
        /// Number of events.
        count: usize,
        /// [`WAITS_MAX`].
        max: usize,
    },
    /// A payload over the limit of its call.
    #[error("{name} with a payload of {got} bytes; at most {max} are allowed")]
    PayloadTooLarge {
        /// The call.
        name: &'static str,
        /// Size sent.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// A payload shorter than the call needs.
    #[error("the payload is shorter than its call needs")]
    PayloadTooShort,
    /// A structured payload that does not decode.
    #[error("the payload of {0} does not decode")]
    BadPayload(&'static str),
    /// An object or event was named with an id that is taken, or with none.
    #[error("{0} was made with an id that is none or in use")]
    BadId(&'static str),
    /// A peer tells something of an object that is another peer's to tell.
    #[error("the peer speaks for another one: {0}")]
    NotItsOwn(&'static str),
    /// A limit of the session, see [`crate::limits`].
    #[error("a limit of the session is reached: {0}")]
    Limit(&'static str),
    /// The link broke inside a frame.
    #[error("the link broke inside a frame")]
    Broken,
}

/// Encodes a structured payload.
///
/// # Panics
/// Never: our own types encode into memory.
pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("memory is the only thing that encoding needs")
}

/// Decodes a structured payload from a peer.
///
/// # Errors
/// [`FrameError::BadPayload`] with `name` when the bytes are not a `T`, or too many.
pub fn decode<T: serde::de::DeserializeOwned>(
    name: &'static str,
    bytes: &[u8],
) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::BadPayload(name)),
    }
}
