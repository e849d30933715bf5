//! A connection whose records another process continues.

use zeroize::Zeroizing;

use super::Records;
use super::format::{Direction, Side};
use crate::error::RecordError;
use crate::suite::{SECRET_BYTES_MAX, Suite, TrafficSecret};

/// Number of bytes of a [`Handover`].
pub const HANDOVER_BYTES: usize = HEAD_BYTES + 2 * DIRECTION_BYTES;

/// Format, suite, side, and whether a key update is owed.
const HEAD_BYTES: usize = 5;
/// Sequence number and secret of a direction.
const DIRECTION_BYTES: usize = 8 + SECRET_BYTES_MAX;
/// Number of this format.
const FORMAT: u8 = 1;

/// Bytes with which another process continues the records of a connection. They are secret, and are
/// cleared when they are dropped.
///
/// A daemon makes the handshake and passes the socket and these bytes to a worker, so that the
/// worker never holds a key that outlives its session.
pub type Handover = Zeroizing<[u8; HANDOVER_BYTES]>;

impl Records {
    /// Ends the records here, so that another process continues them. The other process does not
    /// know of key updates that this side has asked for and not got: they count as records without
    /// data. Two processes that seal under one key would destroy its secrecy, so this takes the
    /// records away.
    ///
    /// # Errors
    /// Fails if a direction has ended, or a message has come only in part.
    pub fn hand_over(self) -> Result<Handover, RecordError> {
        let (outgoing, owes) = self.sealer.state()?;
        let (side, incoming) = self.opener.state()?;
        let mut bytes = Zeroizing::new([0; HANDOVER_BYTES]);
        let [high, low] = outgoing.secret.suite().code().to_be_bytes();
        let head = [FORMAT, high, low, u8::from(side == Side::Server), u8::from(owes)];
        let (first, rest) = bytes.split_at_mut(HEAD_BYTES);
        first.copy_from_slice(&head);
        for (room, direction) in rest.chunks_exact_mut(DIRECTION_BYTES).zip([outgoing, incoming]) {
            let (sequence, secret) = room.split_at_mut(8);
            sequence.copy_from_slice(&direction.sequence.to_be_bytes());
            let known = direction.secret.bytes();
            secret.get_mut(..known.len()).unwrap_or_default().copy_from_slice(known);
        }
        Ok(bytes)
    }

    /// Continues records that another process has handed over.
    ///
    /// # Errors
    /// Fails if the bytes are not a [`Handover`].
    pub fn take_over(bytes: &[u8]) -> Result<Self, RecordError> {
        let read = || {
            let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
            let &[FORMAT, high, low, side @ 0..=1, owes @ 0..=1] = head else { return None };
            let suite = Suite::from_code(u16::from_be_bytes([high, low]))?;
            let (outgoing, incoming) = rest.split_at_checked(DIRECTION_BYTES)?;
            let side = if side == 1 { Side::Server } else { Side::Client };
            Some(Self::resume(
                side,
                direction(suite, outgoing)?,
                direction(suite, incoming)?,
                owes == 1,
            ))
        };
        read().ok_or(RecordError::Handover)
    }
}

fn direction(suite: Suite, bytes: &[u8]) -> Option<Direction> {
    let (sequence, secret) = bytes.split_first_chunk::<8>()?;
    if secret.len() != SECRET_BYTES_MAX {
        return None;
    }
    let secret = TrafficSecret::new(suite, secret.get(..suite.secret_bytes())?)?;
    Some(Direction { secret, sequence: u64::from_be_bytes(*sequence) })
}
