//! Makes records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aws_lc_rs::aead::Aad;

use super::format::{Direction, Updates, content, message};
use crate::alert::Alert;
use crate::error::RecordError;
use crate::limits::{
    HEADER_BYTES, PLAIN_BYTES_MAX, RECORD_OVERHEAD_BYTES, TAG_BYTES, UPDATE_RECORD_BYTES,
};
use crate::suite::{RecordKey, Suite, TrafficSecret};

/// Sending direction of a connection.
#[derive(Debug)]
pub struct Sealer {
    secret: TrafficSecret,
    key: RecordKey,
    /// Number of records after which this side takes a new key.
    update_records: u64,
    /// Whether this side has ended its direction.
    closed: bool,
    /// Shared with the [`super::Opener`].
    updates: Arc<Updates>,
}

impl Sealer {
    pub(super) fn new(outgoing: Direction, updates: Arc<Updates>) -> Self {
        let Direction { secret, sequence } = outgoing;
        let key = RecordKey::new(&secret, sequence);
        let update_records = secret.suite().update_records();
        Self { secret, key, update_records, closed: false, updates }
    }

    /// Returns the cipher suite.
    pub fn suite(&self) -> Suite {
        self.secret.suite()
    }

    /// Makes this side take a new key after fewer records than the standard demands. Tests use it.
    pub fn set_update_records(&mut self, records: u64) {
        self.update_records = records.clamp(1, self.secret.suite().update_records());
    }

    /// Seals as many records of data into `out` as fit, and returns the number of bytes written.
    /// All records except the last one of `pieces` have the largest size. What did not fit is still
    /// in `pieces`.
    ///
    /// # Errors
    /// Fails if this side has closed, or if `out` has less room than
    /// [`SEAL_BYTES_MIN`](crate::limits::SEAL_BYTES_MIN) and the next record does not fit.
    pub fn seal(&mut self, pieces: &mut Pieces<'_>, out: &mut [u8]) -> Result<usize, RecordError> {
        if self.closed {
            return Err(RecordError::Closed);
        }
        let mut written = 0;
        while pieces.left() > 0 {
            let room = out.get_mut(written..).unwrap_or_default();
            let plain = pieces.left().min(PLAIN_BYTES_MAX);
            let update = if self.update_due() { UPDATE_RECORD_BYTES } else { 0 };
            if room.len() < update + plain + RECORD_OVERHEAD_BYTES {
                break;
            }
            if update > 0 {
                written += self.update(false, room)?;
            }
            let room = out.get_mut(written..).unwrap_or_default();
            written += self.record(content::DATA, pieces, plain, room)?;
        }
        if written == 0 && pieces.left() > 0 { Err(RecordError::NoRoom) } else { Ok(written) }
    }

    /// Takes a new key, and writes the record that tells the peer. With `ask` the peer is asked to
    /// take a new key, too. [`Sealer::seal`] does this by itself where the standard demands it.
    ///
    /// # Errors
    /// Fails if this side has closed or the record does not fit.
    pub fn update(&mut self, ask: bool, out: &mut [u8]) -> Result<usize, RecordError> {
        if self.closed {
            return Err(RecordError::Closed);
        }
        let update = [message::KEY_UPDATE, 0, 0, 1, u8::from(ask)];
        let written =
            self.record(content::HANDSHAKE, &mut Pieces::new(&[&update]), update.len(), out)?;
        // RFC 8446, 4.6.3: "After sending a KeyUpdate message, the sender SHALL send all its
        // traffic using the next generation of keys".
        self.secret = self.secret.next();
        self.key = RecordKey::new(&self.secret, 0);
        // The answer to a request is an update that asks for nothing. If this one asks, the answer
        // is still owed.
        if ask {
            self.updates.asked.fetch_add(1, Ordering::Relaxed);
        } else {
            self.updates.owed.store(false, Ordering::Relaxed);
        }
        Ok(written)
    }

    /// Writes the record that says that this side has sent everything. Nothing can follow it.
    ///
    /// # Errors
    /// Fails if this side has closed or the record does not fit.
    pub fn close(&mut self, out: &mut [u8]) -> Result<usize, RecordError> {
        // RFC 8446, 6.1: "Each party MUST send a "close_notify" alert before closing its write side
        // of the connection, unless it has already sent some error alert."
        self.alert(Alert::CLOSE_NOTIFY, out)
    }

    /// Writes the record that tells the peer of an error. Nothing can follow it.
    ///
    /// # Errors
    /// Fails if this side has closed or the record does not fit.
    pub fn alert(&mut self, alert: Alert, out: &mut [u8]) -> Result<usize, RecordError> {
        if self.closed {
            return Err(RecordError::Closed);
        }
        let bytes = [alert.level(), alert.0];
        let written = self.record(content::ALERT, &mut Pieces::new(&[&bytes]), bytes.len(), out)?;
        self.closed = true;
        Ok(written)
    }

    /// Returns whether a key update must come before the next record of data.
    ///
    /// RFC 8446, 4.6.3: "If the request_update field is set to "update_requested", then the
    /// receiver MUST send a KeyUpdate of its own with request_update set to "update_not_requested"
    /// prior to sending its next Application Data record."
    ///
    /// RFC 8446, 5.5: "Implementations SHOULD do a key update as described in Section 4.6.3 prior
    /// to reaching these limits."
    fn update_due(&self) -> bool {
        self.key.sequence >= self.update_records || self.updates.owed.load(Ordering::Relaxed)
    }

    /// Writes one record with the next `plain` bytes of `pieces`.
    ///
    /// The cipher reads content that lies in one piece where it is. Memory that the program changes
    /// meanwhile makes a record of old and new bytes, as a copy would, and no bad record: the tag
    /// is computed over what was written to `out`.
    fn record(
        &mut self,
        kind: u8,
        pieces: &mut Pieces<'_>,
        plain: usize,
        out: &mut [u8],
    ) -> Result<usize, RecordError> {
        let (head, rest) =
            out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(RecordError::NoRoom)?;
        let (sealed, rest) = rest.split_at_mut_checked(plain).ok_or(RecordError::NoRoom)?;
        let end = rest.first_chunk_mut::<{ 1 + TAG_BYTES }>().ok_or(RecordError::NoRoom)?;
        let nonce = self.key.nonce(self.secret.suite().records_max())?;
        // RFC 8446, 5.2: "legacy_record_version: The legacy_record_version field is always 0x0303."
        let [high, low] =
            u16::try_from(plain + end.len()).map_err(|_| RecordError::Overflow)?.to_be_bytes();
        *head = [content::DATA, 3, 3, high, low];
        let (aead, aad) = (&self.key.aead, Aad::from(*head));
        match pieces.next_slice(plain) {
            Some(slice) => aead.seal_out_of_place_scatter(nonce, aad, slice, sealed, &[kind], end),
            None => {
                pieces.copy_into(sealed);
                aead.seal_in_place_scatter(nonce, aad, sealed, &[kind], end)
            }
        }
        .map_err(|_| RecordError::Overflow)?;
        self.key.sequence += 1;
        Ok(plain + RECORD_OVERHEAD_BYTES)
    }

    /// Returns the state to hand over, and whether a key update is owed.
    pub(super) fn state(self) -> Result<(Direction, bool), RecordError> {
        if self.closed {
            return Err(RecordError::Closed);
        }
        let owes = self.updates.owed.load(Ordering::Relaxed);
        Ok((Direction { sequence: self.key.sequence, secret: self.secret }, owes))
    }
}

/// Slices of the caller's memory that are sent as one stream of bytes.
#[derive(Debug)]
pub struct Pieces<'a> {
    pieces: &'a [&'a [u8]],
    /// Number of bytes of the first piece that are taken.
    offset: usize,
    left: usize,
}

impl<'a> Pieces<'a> {
    pub fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces, offset: 0, left: pieces.iter().map(|piece| piece.len()).sum() }
    }

    /// Returns the number of bytes that are not sealed yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Takes the next bytes, if they lie in one piece.
    fn next_slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        while let Some((first, others)) = self.pieces.split_first()
            && self.offset == first.len()
        {
            (self.pieces, self.offset) = (others, 0);
        }
        let slice = self.pieces.first()?.get(self.offset..)?.get(..bytes)?;
        self.offset += bytes;
        self.left -= bytes;
        Some(slice)
    }

    /// Fills `into` with the next bytes. The caller has checked that there are as many.
    fn copy_into(&mut self, mut into: &mut [u8]) {
        while let (false, Some((first, others))) = (into.is_empty(), self.pieces.split_first()) {
            let rest = first.get(self.offset..).unwrap_or_default();
            let count = rest.len().min(into.len());
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(rest.get(..count).unwrap_or_default());
            into = later;
            self.left -= count;
            if count == rest.len() {
                (self.pieces, self.offset) = (others, 0);
            } else {
                self.offset += count;
            }
        }
    }
}
