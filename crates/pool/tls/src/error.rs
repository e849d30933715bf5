//! Errors of records and handshakes.

use crate::alert::Alert;
use crate::key::PublicKey;
use crate::limits::{
    BODY_BYTES_MAX, HANDSHAKE_BYTES_MAX, IDLE_RECORDS_MAX, PLAIN_BYTES_MAX, SEAL_BYTES_MIN,
    TICKET_BYTES_MAX,
};

/// Why the records of a connection ended. After one of these nothing more is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("a record has the outer type {0}; every record after the handshake has type 23")]
    OuterType(u8),
    #[error(
        "a record claims {bytes} bytes behind its header; BODY_BYTES_MAX permits {BODY_BYTES_MAX}"
    )]
    TooLong { bytes: usize },
    #[error("a record has {bytes} bytes behind its header, too few for a type and a tag")]
    TooShort { bytes: usize },
    #[error(
        "a record does not verify: its bytes were changed, reordered, repeated or left out on \
         the way, or come from another connection"
    )]
    Forged,
    #[error("the content of a record is larger than PLAIN_BYTES_MAX ({PLAIN_BYTES_MAX} bytes)")]
    Overflow,
    #[error("a record has only padding and no content type")]
    NoContentType,
    #[error("a record has the content type {0}, which is not expected here")]
    ContentType(u8),
    #[error("an alert or a handshake message is empty")]
    EmptyMessage,
    #[error("an alert has {bytes} bytes instead of 2")]
    AlertLength { bytes: usize },
    #[error("a handshake message has the type {0}, which is not expected after the handshake")]
    Message(u8),
    #[error("another kind of record stands between the parts of a handshake message")]
    Interleaved,
    #[error("a key update has {bytes} bytes instead of 1")]
    UpdateLength { bytes: usize },
    #[error("a key update asks with the value {0}; only 0 and 1 exist")]
    UpdateRequest(u8),
    #[error("bytes follow a key update in the same record")]
    UpdateNotLast,
    #[error("a session ticket has {bytes} bytes; TICKET_BYTES_MAX permits {TICKET_BYTES_MAX}")]
    TicketTooLong { bytes: usize },
    #[error(
        "the peer sent more than IDLE_RECORDS_MAX ({IDLE_RECORDS_MAX}) records in a row without \
         any data"
    )]
    Idle,
    #[error("one key was used for {records} records, which is the limit of its cipher suite")]
    KeyWornOut { records: u64 },
    #[error("the peer ended the connection: {0}")]
    Alert(Alert),
    #[error(
        "the peer has ended or the connection was cut: it did not say that it had sent everything"
    )]
    Truncated,
    #[error("this side has already ended the connection")]
    Closed,
    #[error("sealing needs {SEAL_BYTES_MIN} bytes of room (SEAL_BYTES_MIN)")]
    NoRoom,
    #[error("a connection cannot be handed over in the middle of a message")]
    MidMessage,
    #[error("these bytes are not a connection that another process handed over")]
    Handover,
}

impl RecordError {
    /// Returns the alert that tells the peer of this error. `None` if the peer has ended the
    /// connection, or if the error is not the peer's.
    pub fn alert(&self) -> Option<Alert> {
        Some(match self {
            // RFC 8446, 5: "If a TLS implementation receives an unexpected record type, it MUST
            // terminate the connection with an "unexpected_message" alert."
            Self::OuterType(_)
            | Self::ContentType(_)
            | Self::NoContentType
            | Self::EmptyMessage
            | Self::Message(_)
            | Self::Interleaved
            | Self::UpdateNotLast
            | Self::Idle => Alert::UNEXPECTED_MESSAGE,
            Self::TooLong { .. } | Self::Overflow => Alert::RECORD_OVERFLOW,
            // RFC 8446, 5.2: "If the decryption fails, the receiver MUST terminate the connection
            // with a "bad_record_mac" alert." A record without room for a tag cannot decrypt.
            Self::TooShort { .. } | Self::Forged => Alert::BAD_RECORD_MAC,
            Self::AlertLength { .. } | Self::UpdateLength { .. } | Self::TicketTooLong { .. } => {
                Alert::DECODE_ERROR
            }
            Self::UpdateRequest(_) => Alert::ILLEGAL_PARAMETER,
            Self::KeyWornOut { .. } => Alert::INTERNAL_ERROR,
            Self::Alert(_)
            | Self::Truncated
            | Self::Closed
            | Self::NoRoom
            | Self::MidMessage
            | Self::Handover => return None,
        })
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    #[error(
        "the peer has another key than the one pinned for it: expected {expected}, found {found}. \
         Either its identity was made anew, or another machine answers in its place. Compare the \
         fingerprint {} with the one that the node itself shows before you pin the new key",
        found.fingerprint()
    )]
    OtherKey { expected: PublicKey, found: PublicKey },
    #[error(
        "the peer speaks TLS, but no protocol that this side knows; install the same release on \
         both sides"
    )]
    OtherProtocol,
    #[error("the peer does not speak TLS; is encryption switched off there, or the address wrong?")]
    NotTls,
    #[error(
        "the peer sent more than HANDSHAKE_BYTES_MAX ({HANDSHAKE_BYTES_MAX}) bytes before its \
         handshake was finished"
    )]
    TooMuch,
    #[error("the peer refused the handshake: {0}")]
    Refused(Alert),
    #[error("the peer's key is not an Ed25519 public key")]
    NoKey,
    #[error("the handshake is not finished")]
    Unfinished,
    #[error("the keys that the handshake agreed on are not those that it reported")]
    Secrets,
    #[error("this side cannot make a handshake: {0}")]
    Setup(rustls::Error),
    #[error("the handshake failed: {0}")]
    Tls(rustls::Error),
}
