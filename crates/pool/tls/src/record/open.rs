//! Opens records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use aws_lc_rs::error::Unspecified;

use super::format::{Direction, Side, Updates, body_bytes, content, message};
use crate::alert::Alert;
use crate::error::RecordError;
use crate::limits::{HEADER_BYTES, IDLE_RECORDS_MAX, PLAIN_BYTES_MAX, TAG_BYTES, TICKET_BYTES_MAX};
use crate::suite::{RecordKey, TrafficSecret};

/// Receiving direction of a connection.
#[derive(Debug)]
pub struct Opener {
    side: Side,
    secret: TrafficSecret,
    key: RecordKey,
    /// Number of records that one key may open.
    records_max: u64,
    /// Number of records since the last one with data.
    idle: u32,
    partial: Partial,
    state: State,
    /// Shared with the [`super::Sealer`].
    updates: Arc<Updates>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Open,
    /// The peer has said that it sends no more.
    Closed,
    Failed(RecordError),
}

/// What a record had in it.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Data of the peer, verified.
    Data(&'a mut [u8]),
    /// A message of TLS's own, which the [`Opener`] has dealt with.
    Handled,
    /// The peer has sent everything.
    Closed,
}

/// Handshake message of which a part has come.
#[derive(Debug, Default)]
struct Partial {
    /// The message's type and length, and the content of a KeyUpdate.
    head: [u8; 5],
    /// Number of bytes of `head` that have come.
    count: usize,
    /// Number of bytes that are still to skip.
    skip: usize,
}

/// Bytes of a handshake message before its content.
const MESSAGE_HEAD_BYTES: usize = 4;

impl Opener {
    pub(super) fn new(side: Side, incoming: Direction, updates: Arc<Updates>) -> Self {
        let Direction { secret, sequence } = incoming;
        Self {
            side,
            key: RecordKey::new(&secret, sequence),
            records_max: secret.suite().records_max(),
            secret,
            idle: 0,
            partial: Partial::default(),
            state: State::Open,
            updates,
        }
    }

    /// Makes this side accept fewer records under one key than the standard permits. Tests use it.
    pub fn set_records_max(&mut self, records: u64) {
        self.records_max = records.min(self.secret.suite().records_max());
    }

    /// Opens one whole record in place.
    ///
    /// # Errors
    /// Fails if the record is not what the peer may send now. Every later call fails with the same
    /// error.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<Message<'a>, RecordError> {
        let Some((header, body)) = record.split_first_chunk_mut::<HEADER_BYTES>() else {
            return self.fail(RecordError::TooShort { bytes: 0 });
        };
        let (header, bytes) = (*header, body.len());
        self.open_with(&header, bytes, move |key, nonce, aad| key.open_in_place(nonce, aad, body))
    }

    /// Opens the record that fills `memory` from `at` to its end, and moves its content to the
    /// start of `memory`.
    ///
    /// # Errors
    /// See [`Opener::open`].
    pub fn open_down<'a>(
        &mut self,
        memory: &'a mut [u8],
        at: usize,
    ) -> Result<Message<'a>, RecordError> {
        let header = memory.get(at..).and_then(|record| record.first_chunk::<HEADER_BYTES>());
        let Some(header) = header.copied() else {
            return self.fail(RecordError::TooShort { bytes: 0 });
        };
        let from = at + HEADER_BYTES;
        let bytes = memory.len().saturating_sub(from);
        self.open_with(&header, bytes, move |key, nonce, aad| {
            key.open_within(nonce, aad, memory, from..)
        })
    }

    /// Opens a whole record into other memory. Content, type and padding come to the start of
    /// `target`, which has at least [`opened_bytes`] bytes. If the record does not verify, that
    /// part of `target` is cleared.
    ///
    /// Nobody sees the record but this call, so a program that writes to `target` meanwhile spoils
    /// its own bytes and nothing else. The type of the content is an exception: it is behind the
    /// content for the moment until it is looked at.
    ///
    /// # Errors
    /// See [`Opener::open`]. With too little room, the record can still be opened elsewhere.
    pub(super) fn open_apart<'a>(
        &mut self,
        record: &[u8],
        target: &'a mut [u8],
    ) -> Result<Message<'a>, RecordError> {
        let parts = record.split_first_chunk::<HEADER_BYTES>();
        let parts = parts.and_then(|(header, body)| Some((header, body.split_last_chunk()?)));
        let Some((header, (sealed, tag))) = parts else {
            return self.fail(RecordError::TooShort { bytes: record.len() });
        };
        let tag: &[u8; TAG_BYTES] = tag;
        let opened = target.get_mut(..sealed.len()).ok_or(RecordError::NoRoom)?;
        self.open_with(header, sealed.len() + tag.len(), move |key, nonce, aad| {
            match key.open_separate_gather(nonce, aad, sealed, tag, opened) {
                Ok(()) => Ok(opened),
                Err(forged) => {
                    // The library promises nothing about what it has written by then.
                    opened.fill(0);
                    Err(forged)
                }
            }
        })
    }

    /// Takes note that the stream has ended.
    ///
    /// # Errors
    /// Fails if the peer has not said before that it has sent everything, or if an earlier record
    /// failed.
    pub fn end_of_stream(&mut self) -> Result<(), RecordError> {
        match self.state {
            State::Closed => Ok(()),
            State::Failed(error) => Err(error),
            // RFC 8446, 6.1, about close_notify: "This alert notifies the recipient that the sender
            // will not send any more messages on this connection." Without it, somebody else may
            // have cut the stream.
            State::Open => self.fail(RecordError::Truncated),
        }
    }

    /// Returns the number of bytes that follow a header, if the opener still accepts records.
    ///
    /// # Errors
    /// Fails if the header cannot be that of the next record. Every later call fails, too.
    pub(super) fn expect(&mut self, header: &[u8; HEADER_BYTES]) -> Result<usize, RecordError> {
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        body_bytes(header).or_else(|error| self.fail(error))
    }

    fn fail<T>(&mut self, error: RecordError) -> Result<T, RecordError> {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(error);
        }
        match self.state {
            State::Failed(first) => Err(first),
            State::Open | State::Closed => Err(error),
        }
    }

    /// Opens a record with `bytes` bytes behind its header. `decrypt` verifies them and returns
    /// their content, its type and the padding.
    fn open_with<'a>(
        &mut self,
        header: &[u8; HEADER_BYTES],
        bytes: usize,
        decrypt: impl FnOnce(&LessSafeKey, Nonce, Aad<[u8; HEADER_BYTES]>) -> Decrypted<'a>,
    ) -> Result<Message<'a>, RecordError> {
        match self.state {
            State::Open => {}
            // RFC 8446, 6.1: "Any data received after a closure alert has been received MUST be
            // ignored."
            State::Closed => return Ok(Message::Closed),
            State::Failed(error) => return Err(error),
        }
        let (kind, content) = match self.verify(header, bytes, decrypt) {
            Ok(opened) => opened,
            Err(error) => return self.fail(error),
        };
        match self.dispatch(kind, content) {
            Ok(Step::Data) => Ok(Message::Data(content)),
            Ok(Step::Handled) => Ok(Message::Handled),
            Ok(Step::Closed) => Ok(Message::Closed),
            Err(error) => self.fail(error),
        }
    }

    /// Decrypts a record. Returns the type of its content, and the content.
    fn verify<'a>(
        &mut self,
        header: &[u8; HEADER_BYTES],
        bytes: usize,
        decrypt: impl FnOnce(&LessSafeKey, Nonce, Aad<[u8; HEADER_BYTES]>) -> Decrypted<'a>,
    ) -> Result<(u8, &'a mut [u8]), RecordError> {
        if body_bytes(header)? != bytes {
            return Err(RecordError::TooShort { bytes });
        }
        let nonce = self.key.nonce(self.records_max)?;
        let inner = decrypt(&self.key.aead, nonce, Aad::from(*header))
            .map_err(|Unspecified| RecordError::Forged)?;
        self.key.sequence += 1;
        // RFC 8446, 5.4: "the full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets".
        if inner.len() > PLAIN_BYTES_MAX + 1 {
            return Err(RecordError::Overflow);
        }
        // RFC 8446, 5.4: "the receiving implementation scans the field from the end toward the
        // beginning until it finds a non-zero octet. This non-zero octet is the content type of the
        // message." And: "If a receiving implementation does not find a non-zero octet in the
        // cleartext, it MUST terminate the connection with an "unexpected_message" alert."
        let at = inner.iter().rposition(|&byte| byte != 0).ok_or(RecordError::NoContentType)?;
        let (content, end) = inner.split_at_mut(at);
        let kind = end.first().copied().ok_or(RecordError::NoContentType)?;
        Ok((kind, content))
    }

    fn dispatch(&mut self, kind: u8, content: &[u8]) -> Result<Step, RecordError> {
        // RFC 8446, 5.1: "Handshake messages MUST NOT be interleaved with other record types."
        if kind != content::HANDSHAKE && self.partial.is_begun() {
            return Err(RecordError::Interleaved);
        }
        match kind {
            content::DATA if !content.is_empty() => {
                self.idle = 0;
                Ok(Step::Data)
            }
            // RFC 8446, 5.1: "Zero-length fragments of Application Data MAY be sent".
            content::DATA => self.note_idle(),
            content::ALERT => self.take_alert(content),
            content::HANDSHAKE => {
                self.take_messages(content)?;
                self.note_idle()
            }
            kind => Err(RecordError::ContentType(kind)),
        }
    }

    fn note_idle(&mut self) -> Result<Step, RecordError> {
        self.idle += 1;
        if self.idle > IDLE_RECORDS_MAX { Err(RecordError::Idle) } else { Ok(Step::Handled) }
    }

    /// RFC 8446, 5.1: "a record with an Alert type MUST contain exactly one message." And 5.4:
    /// "Implementations MUST NOT send Handshake and Alert records that have a zero-length
    /// TLSInnerPlaintext.content; if such a message is received, the receiving implementation MUST
    /// terminate the connection with an "unexpected_message" alert."
    fn take_alert(&mut self, content: &[u8]) -> Result<Step, RecordError> {
        let alert = match *content {
            [] => return Err(RecordError::EmptyMessage),
            // RFC 8446, 6: "the "level" field can safely be ignored."
            [_level, description] => Alert(description),
            _ => return Err(RecordError::AlertLength { bytes: content.len() }),
        };
        match alert {
            Alert::CLOSE_NOTIFY => {
                self.state = State::Closed;
                Ok(Step::Closed)
            }
            // RFC 8446, 6.1: "This alert SHOULD be followed by a "close_notify"."
            Alert::USER_CANCELED => self.note_idle(),
            // RFC 8446, 6: "Unknown Alert types MUST be treated as error alerts."
            other => Err(RecordError::Alert(other)),
        }
    }

    /// Takes handshake messages, of which a record may have several or a part of one.
    fn take_messages(&mut self, mut content: &[u8]) -> Result<(), RecordError> {
        if content.is_empty() {
            return Err(RecordError::EmptyMessage);
        }
        while let Some((&byte, rest)) = content.split_first() {
            if self.partial.skip > 0 {
                let skipped = self.partial.skip.min(content.len());
                self.partial.skip -= skipped;
                content = content.get(skipped..).unwrap_or_default();
                continue;
            }
            content = rest;
            self.partial.put(byte);
            let [kind, high, middle, low, request] = self.partial.head;
            let bytes = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            match (self.partial.count, kind) {
                (..MESSAGE_HEAD_BYTES, _) => {}
                (MESSAGE_HEAD_BYTES, message::KEY_UPDATE) if bytes != 1 => {
                    return Err(RecordError::UpdateLength { bytes });
                }
                (MESSAGE_HEAD_BYTES, message::KEY_UPDATE) => {}
                // RFC 8446, 4.6.1: "At any time after the server has received the client Finished
                // message, it MAY send a NewSessionTicket message." This side never resumes, so it
                // skips tickets. A client sends none.
                (MESSAGE_HEAD_BYTES, message::NEW_SESSION_TICKET) if self.side == Side::Client => {
                    if bytes > TICKET_BYTES_MAX {
                        return Err(RecordError::TicketTooLong { bytes });
                    }
                    self.partial = Partial { skip: bytes, ..Partial::default() };
                }
                (MESSAGE_HEAD_BYTES, kind) => return Err(RecordError::Message(kind)),
                _ => {
                    self.partial = Partial::default();
                    self.take_update(request, content)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a KeyUpdate, behind which `rest` stands in the record.
    fn take_update(&mut self, request: u8, rest: &[u8]) -> Result<(), RecordError> {
        // RFC 8446, 4.6.3: "If an implementation receives any other value, it MUST terminate the
        // connection with an "illegal_parameter" alert."
        let asks = match request {
            0 => false,
            1 => true,
            other => return Err(RecordError::UpdateRequest(other)),
        };
        // RFC 8446, 5.1: "Implementations MUST verify that all messages immediately preceding a key
        // change align with a record boundary; if not, then they MUST terminate the connection with
        // an "unexpected_message" alert."
        if !rest.is_empty() {
            return Err(RecordError::UpdateNotLast);
        }
        // RFC 8446, 4.6.3: "Upon receiving a KeyUpdate, the receiver MUST update its receiving
        // keys."
        self.secret = self.secret.next();
        self.key = RecordKey::new(&self.secret, 0);
        if asks {
            self.updates.owed.store(true, Ordering::Relaxed);
        } else if self.take_answer() {
            // `note_idle` counts this record in a moment.
            self.idle = self.idle.saturating_sub(1);
        }
        Ok(())
    }

    /// Returns whether this side has asked for the update that has come. OpenSSL answers each
    /// request at once, also if it has no data, so these updates do not count as idle.
    fn take_answer(&self) -> bool {
        let fewer = |asked: u32| asked.checked_sub(1);
        let asked = &self.updates.asked;
        asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    /// Returns the side and the state to hand over.
    pub(super) fn state(self) -> Result<(Side, Direction), RecordError> {
        match self.state {
            State::Open if self.partial.is_begun() => Err(RecordError::MidMessage),
            State::Open => {
                Ok((self.side, Direction { sequence: self.key.sequence, secret: self.secret }))
            }
            State::Closed => Err(RecordError::Closed),
            State::Failed(error) => Err(error),
        }
    }
}

/// Content, type and padding of a record that verifies.
type Decrypted<'a> = Result<&'a mut [u8], Unspecified>;

/// Returns the number of bytes that [`Opener::open_apart`] writes.
pub(super) fn opened_bytes(record: &[u8]) -> usize {
    record.len().saturating_sub(HEADER_BYTES + TAG_BYTES)
}

/// What a record's content means for the caller.
enum Step {
    Data,
    Handled,
    Closed,
}

impl Partial {
    fn is_begun(&self) -> bool {
        self.count > 0 || self.skip > 0
    }

    fn put(&mut self, byte: u8) {
        if let Some(place) = self.head.get_mut(self.count) {
            *place = byte;
            self.count += 1;
        }
    }
}
