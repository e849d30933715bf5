//! Messages of members after the handshake: a fixed header, then the bytes of a put or an abort's
//! text.

use crate::bytes::ByteReader;
use crate::error::Refusal;
use crate::layout::{NO_SIGNAL, PES_MAX};

/// Size of a header in bytes.
pub const FRAME_BYTES: usize = 40;

/// Maximum size of an abort's text in bytes: a sentence or two.
pub const REASON_BYTES_MAX: usize = 512;

/// Start of every header. It reveals at once a stream that has lost its place.
const MAGIC: u16 = 0x6747;

mod op {
    pub(super) const PUT: u8 = 1;
    pub(super) const FLUSH: u8 = 2;
    pub(super) const DONE: u8 = 3;
    pub(super) const ABORT: u8 = 4;
}

/// Content of a note of abort.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AbortNote {
    /// Generation: how often the sender had been reset.
    pub generation: u64,
    /// Whether a member has gone, so that no reset helps.
    pub is_final: bool,
    pub reason: String,
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// `length` bytes follow, for offset `at` in the part of `pe`. Then the receiver stores
    /// `signal` at `signal_at`, unless that is [`NO_SIGNAL`].
    Put {
        /// One of the receiver's PEs.
        pe: u8,
        /// Offset in the part of that PE.
        at: u64,
        /// Number of bytes that follow.
        length: u64,
        /// Offset of the signal.
        signal_at: u64,
        /// Value of the signal.
        signal: u64,
    },
    /// Requests [`Frame::Done`] with the same `mark` when all earlier frames are in place.
    Flush {
        /// Any number; the answer repeats it.
        mark: u64,
    },
    /// Answer to a [`Frame::Flush`].
    Done {
        /// Mark of the request.
        mark: u64,
    },
    /// An abort; `length` bytes of text follow.
    Abort {
        /// Generation: how often the sender has been reset.
        generation: u64,
        /// Whether a member has gone, so that no reset helps.
        is_final: bool,
        /// Number of bytes that follow.
        length: u64,
    },
}

impl Frame {
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let (op, pe, numbers) = match *self {
            Self::Put { pe, at, length, signal_at, signal } => {
                (op::PUT, pe, [length, at, signal_at, signal])
            }
            Self::Flush { mark } => (op::FLUSH, 0, [0, mark, NO_SIGNAL, 0]),
            Self::Done { mark } => (op::DONE, 0, [0, mark, NO_SIGNAL, 0]),
            Self::Abort { generation, is_final, length } => {
                (op::ABORT, is_final.into(), [length, generation, NO_SIGNAL, 0])
            }
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = op;
        bytes[3] = pe;
        for (to, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a header that a peer sent. The caller checks the target of a put against the parts.
    ///
    /// # Errors
    /// Fails if the bytes are no header.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, Refusal> {
        let mut rest = ByteReader(bytes);
        let (magic, [op, pe], zero) = (u16::from_le_bytes(rest.take()), rest.take(), rest.number());
        let (length, first, signal_at, signal) =
            (rest.long(), rest.long(), rest.long(), rest.long());
        if magic != MAGIC || zero != 0 || u32::from(pe) >= PES_MAX {
            return Err(Refusal::NotGgas);
        }
        let empty = signal_at == NO_SIGNAL && signal == 0;
        let bare = empty && pe == 0;
        match op {
            op::PUT => Ok(Self::Put { pe, at: first, length, signal_at, signal }),
            op::FLUSH if bare && length == 0 => Ok(Self::Flush { mark: first }),
            op::DONE if bare && length == 0 => Ok(Self::Done { mark: first }),
            op::ABORT if empty && pe <= 1 && length <= REASON_BYTES_MAX as u64 => {
                Ok(Self::Abort { generation: first, is_final: pe == 1, length })
            }
            _ => Err(Refusal::NotGgas),
        }
    }

    /// Returns a note of abort and its text.
    pub fn abort(generation: u64, is_final: bool, reason: &str) -> (Self, Vec<u8>) {
        let mut text = reason.as_bytes().to_vec();
        text.truncate(REASON_BYTES_MAX);
        (Self::Abort { generation, is_final, length: text.len() as u64 }, text)
    }

    /// Returns how many bytes complete the note of abort on a stream of only such notes.
    pub(crate) fn missing(heard: &[u8]) -> Result<usize, Refusal> {
        let Some(header) = heard.first_chunk::<FRAME_BYTES>() else {
            return Ok(FRAME_BYTES - heard.len());
        };
        let Self::Abort { length, .. } = Self::decode(header)? else {
            return Err(Refusal::NotGgas);
        };
        let length = usize::try_from(length).map_err(|_| Refusal::NotGgas)?;
        Ok((FRAME_BYTES + length).saturating_sub(heard.len()))
    }

    /// Returns the note of abort if it is complete.
    pub(crate) fn whole_abort(heard: &[u8]) -> Option<AbortNote> {
        let (header, text) = heard.split_first_chunk::<FRAME_BYTES>()?;
        let Ok(Self::Abort { generation, is_final, length }) = Self::decode(header) else {
            return None;
        };
        let reason = || String::from_utf8_lossy(text).into_owned();
        (text.len() as u64 == length).then(|| AbortNote { generation, is_final, reason: reason() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent() {
        for frame in [
            Frame::Put { pe: 63, at: 1, length: u64::MAX, signal_at: 8, signal: 9 },
            Frame::Flush { mark: u64::MAX },
            Frame::Done { mark: 7 },
            Frame::Abort { generation: 1, is_final: true, length: 512 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn headers_that_nobody_sends_are_refused() {
        let good = Frame::Put { pe: 1, at: 1, length: 1, signal_at: 8, signal: 9 }.encode();
        for (at, value) in [(0, 0), (2, 0), (2, 9), (3, 64), (4, 1)] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Frame::decode(&bytes), Err(Refusal::NotGgas), "{at} {value}");
        }
        let long =
            Frame::Abort { generation: 0, is_final: false, length: REASON_BYTES_MAX as u64 + 1 };
        assert_eq!(Frame::decode(&long.encode()), Err(Refusal::NotGgas));
    }

    #[test]
    fn a_note_of_abort_is_whole_when_its_text_is() {
        let (frame, text) = Frame::abort(3, true, "the end");
        let note = [frame.encode().as_slice(), &text].concat();
        for length in 0..note.len() {
            assert!(Frame::missing(&note[..length]).unwrap() > 0);
            assert_eq!(Frame::whole_abort(&note[..length]), None);
        }
        assert_eq!(Frame::missing(&note), Ok(0));
        assert_eq!(
            Frame::whole_abort(&note),
            Some(AbortNote { generation: 3, is_final: true, reason: "the end".to_owned() })
        );
        assert!(Frame::missing(&Frame::Flush { mark: 0 }.encode()).is_err());
    }
}
