//! The messages of a hello, sent and received within a time limit.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use penstock_wire::hello::{
    Final, INSTANCE_BYTES, MAGIC, NONCE_BYTES, PROOF_BYTES, REASON_BYTES_MAX, SIGNATURE_BYTES,
    Verdict, Welcome,
};
use penstock_wire::limits::{LINE_SILENCE_MS_MAX, PROTOCOL_VERSION};
use penstock_wire::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::LinkError;
use crate::key::fill_random;
use crate::stream::Stream;

/// Bytes of magic and version, with which [`Hello`](penstock_wire::hello::Hello) and [`Welcome`]
/// start in every version.
pub(crate) const PREFIX_BYTES: usize = 10;

/// Time limit for the peer.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// All messages arrive before this time.
    At(Instant),
    /// Each message arrives within this time.
    Each(Duration),
}

impl Limit {
    pub(crate) fn deadline(self) -> Instant {
        match self {
            Self::At(deadline) => deadline,
            Self::Each(patience) => penstock_process::now() + patience,
        }
    }

    /// Time for a message to a client in line, which the peer repeats at its own interval.
    fn in_line(self) -> Duration {
        match self {
            Self::At(deadline) => deadline.saturating_duration_since(penstock_process::now()),
            Self::Each(patience) => patience.max(Duration::from_millis(LINE_SILENCE_MS_MAX)),
        }
    }
}

/// Sends and receives the messages of a hello within the time limit.
pub(crate) struct Talk<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) peer: &'a str,
    pub(crate) limit: Limit,
}

impl Talk<'_> {
    pub(crate) fn say<T: IntoBytes + Immutable>(&self, message: &T) -> Result<(), LinkError> {
        self.in_time(self.stream.write_all_until(message.as_bytes(), self.limit.deadline()))
    }

    pub(crate) fn hear<T: FromBytes + IntoBytes>(&self) -> Result<T, LinkError> {
        self.hear_rest(&[])
    }

    /// Receives a message whose first bytes are known. Reads no byte beyond the message, because
    /// the worker continues where the hello ends.
    pub(crate) fn hear_rest<T: FromBytes + IntoBytes>(&self, first: &[u8]) -> Result<T, LinkError> {
        self.in_time(self.hear_until(first, self.limit.deadline()))
    }

    /// Receives the next message while this side waits in line.
    pub(crate) fn hear_in_line(&self) -> Result<Final, LinkError> {
        let silence = self.limit.in_line();
        self.hear_until(&[], penstock_process::now() + silence).map_err(|error| match error {
            LinkError::HelloTimeout { .. } => LinkError::SilentLine {
                peer: self.peer.to_owned(),
                silence_ms: u64::try_from(silence.as_millis()).unwrap_or(u64::MAX),
            },
            other => other,
        })
    }

    fn hear_until<T: FromBytes + IntoBytes>(
        &self,
        first: &[u8],
        deadline: Instant,
    ) -> Result<T, LinkError> {
        let mut message = T::new_zeroed();
        let bytes = message.as_mut_bytes();
        for (to, from) in bytes.iter_mut().zip(first) {
            *to = *from;
        }
        let rest = bytes.get_mut(first.len()..).unwrap_or_default();
        self.stream.read_exact_until(rest, deadline)?;
        Ok(message)
    }

    /// Names the peer in a time-out as the caller knows it.
    fn in_time<T>(&self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.map_err(|error| match error {
            LinkError::HelloTimeout { .. } => {
                LinkError::HelloTimeout { peer: self.peer.to_owned() }
            }
            other => other,
        })
    }

    pub(crate) fn check_prefix(&self, prefix: &[u8; PREFIX_BYTES]) -> Result<(), LinkError> {
        let [magic @ .., low, high] = prefix;
        if *magic != MAGIC {
            return Err(LinkError::NotPenstock { peer: self.peer.to_owned() });
        }
        let theirs = u16::from_le_bytes([*low, *high]);
        if theirs != PROTOCOL_VERSION {
            return Err(LinkError::WrongVersion {
                peer: self.peer.to_owned(),
                ours: PROTOCOL_VERSION,
                theirs,
            });
        }
        Ok(())
    }

    pub(crate) fn check_verdict(&self, verdict: U16) -> Result<(), LinkError> {
        let peer = self.peer.to_owned();
        match Verdict::from_wire(verdict.get()) {
            Some(Verdict::Welcome) => Ok(()),
            Some(verdict) => Err(LinkError::Refused { peer, verdict }),
            None => Err(LinkError::NotPenstock { peer }),
        }
    }

    /// Receives the reason of a refusal.
    pub(crate) fn hear_reason(&self) -> LinkError {
        let deadline = self.limit.deadline();
        let mut size = [0; 2];
        let mut text = [0; REASON_BYTES_MAX];
        let heard = self.stream.read_exact_until(&mut size, deadline).and_then(|()| {
            let size = usize::from(u16::from_le_bytes(size)).min(REASON_BYTES_MAX);
            let text = text.get_mut(..size).unwrap_or_default();
            self.stream.read_exact_until(text, deadline)?;
            Ok(String::from_utf8_lossy(text).into_owned())
        });
        let peer = self.peer.to_owned();
        match heard {
            // The text is shown on a terminal.
            Ok(text) => LinkError::OverLimit { peer, why: text.replace(char::is_control, "") },
            Err(_) => LinkError::Refused { peer, verdict: Verdict::OverLimit },
        }
    }

    /// Refuses the peer instead of welcoming it.
    pub(crate) fn refuse(&self, verdict: Verdict) -> LinkError {
        self.turn_away(&blank_welcome(verdict, self.stream.features()), verdict)
    }

    /// Refuses the peer after the welcome.
    pub(crate) fn refuse_last(&self, verdict: Verdict) -> LinkError {
        self.turn_away(&Final { verdict: U16::new(verdict as u16), ahead: U32::new(0) }, verdict)
    }

    fn turn_away<T: IntoBytes + Immutable>(&self, message: &T, verdict: Verdict) -> LinkError {
        // One attempt without waiting: a refused peer gets no more of our time.
        let _ = self.stream.send_now(&[IoSlice::new(message.as_bytes())]);
        self.stream.end_politely();
        LinkError::Turned { peer: self.peer.to_owned(), verdict }
    }
}

pub(crate) fn blank_welcome(verdict: Verdict, features: u64) -> Welcome {
    Welcome {
        magic: MAGIC,
        version: U16::new(PROTOCOL_VERSION),
        verdict: U16::new(verdict as u16),
        features: U64::new(features),
        nonce: [0; NONCE_BYTES],
        instance: [0; INSTANCE_BYTES],
        signature: [0; SIGNATURE_BYTES],
        proof: [0; PROOF_BYTES],
    }
}

pub(crate) fn nonce() -> Result<[u8; NONCE_BYTES], LinkError> {
    let mut nonce = [0; NONCE_BYTES];
    fill_random(&mut nonce)?;
    Ok(nonce)
}
