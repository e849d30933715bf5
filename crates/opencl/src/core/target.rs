//! Where reads put their bytes: memory of the program, or a shadow.

use std::any::Any;
use std::slice;
use std::sync::Arc;

use penstock_client::Target;
use penstock_wire::{FrameError, Payload};

use super::rect::Pieces;

/// Keeps alive what the bytes go to, until the read has ended.
pub(crate) type Keep = Option<Arc<dyn Any + Send + Sync>>;

/// Bytes at one address, or rows with gaps from one address on.
pub(crate) struct HostTarget {
    address: *mut u8,
    /// Where the bytes go, from the address on.
    pieces: Pieces,
    bytes: usize,
    _keep: Keep,
}

// SAFETY: The program gave the address for the purpose of being written to by whatever thread, until the read's event
// has ended; nothing here depends on a thread.
unsafe impl Send for HostTarget {}

impl HostTarget {
    /// A target of `pieces` from `address` on.
    ///
    /// # Safety
    /// All pieces must be writable memory, and nobody else may use them until the target is dropped.
    pub(crate) unsafe fn new(address: *mut u8, pieces: Pieces, bytes: usize, keep: Keep) -> Box<Self> {
        Box::new(Self { address, pieces, bytes, _keep: keep })
    }

    /// A target of `length` bytes at `address`.
    ///
    /// # Safety
    /// As [`HostTarget::new`].
    pub(crate) unsafe fn linear(address: *mut u8, length: usize, keep: Keep) -> Box<Self> {
        let pieces = super::rect::Layout::tight([length, 1, 1]).pieces([length, 1, 1]);
        // SAFETY: The same promise.
        unsafe { Self::new(address, pieces, length, keep) }
    }
}

impl Target for HostTarget {
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (mut at, mut left) = range.ok_or(FrameError::PayloadTooShort)?;
        // The peer's numbers: nothing outside the read's own range is ever written.
        if at.checked_add(left).is_none_or(|end| end > self.bytes) {
            return Err(FrameError::BadPayload("ReadData"));
        }
        let length = self.pieces.length().max(1);
        while left > 0 {
            let (piece, within) = (at / length, at % length);
            let start = self.pieces.nth_offset(piece).ok_or(FrameError::PayloadTooShort)?;
            let now = left.min(length - within);
            // SAFETY: `start` is the offset of a piece of `length` bytes, and `within + now` is at most that; so the
            // address is inside memory that `new` was promised to be writable.
            let to = unsafe { self.address.add(start + within) };
            // SAFETY: As above; nobody else uses these bytes until the read's event has ended.
            let to = unsafe { slice::from_raw_parts_mut(to, now) };
            payload.read(to)?;
            at += now;
            left -= now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rect::Layout;
    use super::*;

    #[test]
    fn rows_go_where_their_pitch_says_in_any_portions() {
        let mut host = vec![0u8; 64];
        let region = [3, 2, 2];
        let layout = Layout { start: 1, row_pitch: 5, slice_pitch: 20 };
        // SAFETY: The last piece ends at 1 + 20 + 5 + 3 = 29, inside the vector.
        let mut target = unsafe { HostTarget::new(host.as_mut_ptr(), layout.pieces(region), 12, None) };
        let sent: Vec<u8> = (1..=12).collect();
        target.take(0, &mut &sent[..4]).unwrap();
        target.take(4, &mut &sent[4..11]).unwrap();
        target.take(11, &mut &sent[11..]).unwrap();
        drop(target);
        assert_eq!(host[1..4], [1, 2, 3]);
        assert_eq!(host[6..9], [4, 5, 6]);
        assert_eq!(host[21..24], [7, 8, 9]);
        assert_eq!(host[26..29], [10, 11, 12]);
        assert_eq!(host.iter().filter(|byte| **byte != 0).count(), 12);
    }

    #[test]
    fn bytes_outside_the_read_are_refused() {
        let mut host = [0u8; 8];
        // SAFETY: Eight bytes of the array.
        let mut target = unsafe { HostTarget::linear(host.as_mut_ptr(), 8, None) };
        assert!(target.take(4, &mut &[1u8; 5][..]).is_err());
        assert!(target.take(u64::MAX, &mut &[1u8; 5][..]).is_err());
        assert!(target.take(3, &mut &[1u8; 5][..]).is_ok());
    }
}
