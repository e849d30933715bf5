//! What records look like, and what both directions have in common.

use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::error::RecordError;
use crate::limits::{BODY_BYTES_MAX, HEADER_BYTES, TAG_BYTES};
use crate::suite::TrafficSecret;

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// What the two directions of a connection tell each other.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// Whether the peer has asked for a key update that this side has not made yet.
    pub(super) owed: AtomicBool,
    /// Number of key updates that this side has asked for and not got yet.
    pub(super) asked: AtomicU32,
}

/// State of one direction: its secret, and the number of records under it so far.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) secret: TrafficSecret,
    pub(crate) sequence: u64,
}

impl Direction {
    pub(super) fn new(secret: TrafficSecret) -> Self {
        Self { secret, sequence: 0 }
    }
}

/// Numbers of the types of content (RFC 8446, B.1).
pub(super) mod content {
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const DATA: u8 = 23;
}

/// Numbers of the handshake messages that can follow a handshake (RFC 8446, B.3).
pub(super) mod message {
    pub const NEW_SESSION_TICKET: u8 = 4;
    pub const KEY_UPDATE: u8 = 24;
}

/// Returns the number of bytes that follow a header.
///
/// # Errors
/// Fails if the header cannot be that of a record after the handshake.
pub(super) fn body_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, RecordError> {
    let [kind, _, _, high, low] = *header;
    let bytes = usize::from(u16::from_be_bytes([high, low]));
    // RFC 8446, 5.2: "The outer opaque_type field of a TLSCiphertext record is always set to the
    // value 23 (application_data)". The version, which the standard tells receivers to ignore, is
    // part of what the tag covers.
    if kind != content::DATA {
        return Err(RecordError::OuterType(kind));
    }
    // RFC 8446, 5.2: "The length MUST NOT exceed 2^14 + 256 bytes. An endpoint that receives a
    // record that exceeds this length MUST terminate the connection with a "record_overflow"
    // alert."
    if bytes > BODY_BYTES_MAX {
        return Err(RecordError::TooLong { bytes });
    }
    if bytes < 1 + TAG_BYTES {
        return Err(RecordError::TooShort { bytes });
    }
    Ok(bytes)
}
