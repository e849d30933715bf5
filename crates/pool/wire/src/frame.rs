//! The frame: a fixed header, the call's body, its wait list, and the payload beside it.
//!
//! ```text
//! | Header (16 B) | body (size fixed by opcode) | wait list (8 B each) | payload (streamed) |
//! ```
//!
//! The payload is never copied into the frame.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::id::{Id, kind};
use crate::limits::{BODY_BYTES_MAX, STREAM_BYTES_MAX, WAITS_MAX};

/// The fixed header in front of every call.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct Header {
    /// Number of the call, see [`crate::calls`].
    pub opcode: U16,
    /// Size of the body in bytes. It must be the size in the table.
    pub body: U16,
    /// Number of events in the wait list.
    pub waits: U16,
    /// Always 0, for later use.
    pub reserved: U16,
    /// Size of the payload in bytes.
    pub payload: U64,
}

const _: () = assert!(size_of::<Header>() == 16);

/// The payload that a call may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    None,
    /// At most this number of bytes. The receiver takes all of them into memory.
    UpTo(u64),
    /// Any number of bytes. The receiver passes them on piece by piece.
    Stream,
}

impl PayloadRule {
    /// Returns the largest number of bytes that this rule allows.
    pub const fn bytes_max(self) -> u64 {
        match self {
            Self::None => 0,
            Self::UpTo(max) => max,
            Self::Stream => STREAM_BYTES_MAX,
        }
    }
}

/// One call of the protocol. `Self` is the body.
pub trait Call:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + std::fmt::Debug
{
    /// Number of the call on the wire.
    const OPCODE: u16;
    /// Name of the call, for logs.
    const NAME: &'static str;
    const PAYLOAD: PayloadRule;

    /// Returns the header in front of this call.
    ///
    /// # Errors
    /// If the wait list or the payload exceeds its limit.
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

/// A call that a [`crate::calls::to_client::Reply`] with the same request id answers.
pub trait Request: Call {
    /// The content of the reply's payload if its status is a success.
    type Reply: serde::Serialize + serde::de::DeserializeOwned;
    /// Sets the id that the reply will carry.
    fn set_request(&mut self, request: Id<kind::Request>);
}

/// A frame as it was received, without its payload.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The header, already checked against the table.
    pub header: Header,
    pub body: &'a [u8],
    /// Entries of the wait list, see [`Id::of_entry`].
    pub waits: &'a [Id<kind::Event>],
}

impl Header {
    /// Checks a header from a peer against the entry of the table that the opcode names.
    ///
    /// # Errors
    /// If the body's size, the reserved field or the payload's size is wrong.
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

/// The payload of the frame that is being served. Its bytes are still on the link; the receiver
/// skips those that a handler leaves.
pub trait Payload {
    /// Number of bytes left.
    fn left(&self) -> u64;

    /// Fills `into` with the next bytes.
    ///
    /// # Errors
    /// If fewer bytes are left, or the link broke.
    fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError>;

    /// Reads all remaining bytes into memory. The table's rule for the call bounds their number.
    ///
    /// # Errors
    /// As [`Payload::read`].
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

/// Violations of the protocol in a frame. Each ends the peer's session and affects nothing else.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// An opcode that this side does not serve.
    #[error("the peer sent a call with the unknown opcode {0:#06x}")]
    UnknownOpcode(u16),
    /// The size of the body is not the one in the table.
    #[error("the peer sent {name} with a body of {got} bytes; it has {expected}")]
    WrongBody {
        name: &'static str,
        /// Size that the peer sent, in bytes.
        got: u16,
        /// Size in the table, in bytes.
        expected: usize,
    },
    /// A reserved field is not zero.
    #[error("the peer sent {name} with a reserved field that is not zero")]
    Reserved { name: &'static str },
    /// A wait list is too long.
    #[error("{count} events in a wait list; at most {max} fit one call")]
    TooManyWaits { count: usize, max: usize },
    /// A payload over the limit of its call.
    #[error("{name} with a payload of {got} bytes; at most {max} are allowed")]
    PayloadTooLarge {
        name: &'static str,
        /// Size of the payload, in bytes.
        got: u64,
        /// Largest size that is allowed, in bytes.
        max: u64,
    },
    /// A payload shorter than the call needs.
    #[error("the payload is shorter than its call needs")]
    PayloadTooShort,
    /// A structured payload cannot be decoded.
    #[error("the payload of {0} does not decode")]
    BadPayload(&'static str),
    /// A call would make an object or event with an id that is in use or is none.
    #[error("{0} was given an id that is none or in use")]
    BadId(&'static str),
    /// A peer reports on an object that belongs to another peer.
    #[error("the peer reports on what belongs to another peer: {0}")]
    NotItsOwn(&'static str),
    /// A limit of the session is reached, see [`crate::limits`].
    #[error("a limit of the session is reached: {0}")]
    Limit(&'static str),
    /// A limit that an administrator set is reached. The text names the limit and who set it.
    #[error("{0}")]
    Quota(String),
    /// The link broke inside a frame.
    #[error("the link broke inside a frame")]
    Broken,
}

/// Encodes a structured payload.
///
/// # Panics
/// Does not panic, because encoding our own types into memory cannot fail.
pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("encoding into memory cannot fail")
}

/// Encodes like [`encode`], into memory that has the right size from the start: no part of the
/// content stays behind in memory that was too small.
pub fn encode_in_place<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let size = postcard::experimental::serialized_size(value).unwrap_or_default();
    postcard::to_extend(value, Vec::with_capacity(size)).expect("encoding into memory cannot fail")
}

/// Decodes a structured payload from a peer.
///
/// # Errors
/// Returns [`FrameError::BadPayload`] with `name` if the bytes are not exactly one `T`.
pub fn decode<T: serde::de::DeserializeOwned>(
    name: &'static str,
    bytes: &[u8],
) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::BadPayload(name)),
    }
}
