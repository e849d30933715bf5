//! What guest and host tell each other over the virtio port of the guest. No I/O.
//!
//! A message has a header of 8 bytes (kind, three zeros, length of the payload as a little-endian
//! number) and its payload.

use crate::limits::PAYLOAD_BYTES_MAX;

/// Name of the virtio port.
pub const PORT: &str = "penstock.run";

const HEADER_BYTES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Guest: everything is ready, and the program starts now.
    Ready,
    /// Guest: it runs.
    Alive,
    /// Guest: the program wrote this to its standard output.
    Out(Vec<u8>),
    /// Guest: the program wrote this to its standard error.
    Err(Vec<u8>),
    /// Guest: the program has ended, with its exit status, or 128 and the number of the signal.
    Exit(u8),
    /// Guest: the program could not be started.
    NotStarted {
        /// Exit status for it: 126 or 127 as of a shell, 125 if the guest itself failed.
        status: u8,
        why: String,
    },
    /// Host: the next bytes of the program's standard input. No bytes mean its end.
    In(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    #[error("a message of kind {0}, which does not exist")]
    Kind(u8),
    #[error("a message of {0} bytes; at most {PAYLOAD_BYTES_MAX} are allowed")]
    Length(u32),
    #[error("a message whose payload does not fit its kind")]
    Payload,
}

impl Message {
    /// Returns the bytes of the message. A payload longer than [`PAYLOAD_BYTES_MAX`] is cut off.
    pub fn bytes(&self) -> Vec<u8> {
        let (kind, payload): (u8, Vec<u8>) = match self {
            Self::Ready => (1, Vec::new()),
            Self::Alive => (2, Vec::new()),
            Self::Out(bytes) => (3, bytes.clone()),
            Self::Err(bytes) => (4, bytes.clone()),
            Self::Exit(status) => (5, vec![*status]),
            Self::NotStarted { status, why } => (6, [&[*status], why.as_bytes()].concat()),
            Self::In(bytes) => (7, bytes.clone()),
        };
        let payload = payload.get(..PAYLOAD_BYTES_MAX).unwrap_or(&payload);
        let length = u32::try_from(payload.len()).unwrap_or_default();
        [&[kind, 0, 0, 0], length.to_le_bytes().as_slice(), payload].concat()
    }

    fn read(kind: u8, payload: &[u8]) -> Result<Self, MessageError> {
        let empty = |message: Self| {
            if payload.is_empty() { Ok(message) } else { Err(MessageError::Payload) }
        };
        match (kind, payload) {
            (1, _) => empty(Self::Ready),
            (2, _) => empty(Self::Alive),
            (3, _) => Ok(Self::Out(payload.to_vec())),
            (4, _) => Ok(Self::Err(payload.to_vec())),
            (5, [status]) => Ok(Self::Exit(*status)),
            (6, [status, why @ ..]) => {
                let why = String::from_utf8_lossy(why).into_owned();
                Ok(Self::NotStarted { status: *status, why })
            }
            (7, _) => Ok(Self::In(payload.to_vec())),
            (5 | 6, _) => Err(MessageError::Payload),
            _ => Err(MessageError::Kind(kind)),
        }
    }
}

/// Bytes that have arrived, and the messages in them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole message, if there is one. After an error the stream is unusable.
    pub fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, _, _, _, a, b, c, d] = *header;
        let length = u32::from_le_bytes([a, b, c, d]);
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX);
        let bytes = bytes.ok_or(MessageError::Length(length))?;
        let Some(payload) = rest.get(..bytes) else { return Ok(None) };
        let message = Message::read(kind, payload)?;
        self.bytes.drain(..HEADER_BYTES + bytes);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Ready,
            Message::Alive,
            Message::Out(b"out".to_vec()),
            Message::Err(vec![0; PAYLOAD_BYTES_MAX]),
            Message::Exit(3),
            Message::NotStarted { status: 127, why: "no such file".into() },
            Message::In(Vec::new()),
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent_in_any_pieces() {
        let bytes: Vec<u8> = all().iter().flat_map(Message::bytes).collect();
        for piece in [1, 7, 4096, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.push(part);
                while let Some(message) = decoder.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, all());
        }
    }

    #[test]
    fn what_no_guest_sends_is_an_error() {
        let read = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            decoder.next_message()
        };
        assert_eq!(read(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(MessageError::Kind(0)));
        assert_eq!(read(&[3, 0, 0, 0, 1, 0, 1, 0]), Err(MessageError::Length(65537)));
        assert_eq!(read(&[3, 0, 0, 0, 255, 255, 255, 255]), Err(MessageError::Length(u32::MAX)));
        assert_eq!(read(&[1, 0, 0, 0, 1, 0, 0, 0, 9]), Err(MessageError::Payload));
        assert_eq!(read(&[5, 0, 0, 0, 0, 0, 0, 0]), Err(MessageError::Payload));
        assert_eq!(read(&[5, 0, 0, 0, 1, 0, 0, 0]), Ok(None));
    }
}
