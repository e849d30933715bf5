//! Host memory that reads write to and writes read from: memory of the program, or a shadow.

use std::any::Any;
use std::sync::Arc;
use std::{ptr, slice};

use penstock_client::{HostShape, Source, Target};
use penstock_wire::{FrameError, Payload};

use super::rect::Pieces;

/// Keeps the target of the bytes alive until the read has ended.
pub(crate) type Keep = Option<Arc<dyn Any + Send + Sync>>;

/// Contiguous bytes at an address, or rows with gaps.
pub(crate) struct HostTarget {
    address: *mut u8,
    /// Pieces that receive the bytes, relative to the address.
    pieces: Pieces,
    bytes: usize,
    /// Whether unchanged bytes are not written.
    only_changes: bool,
    _keep: Keep,
}

// SAFETY: The program gave the address so that any thread may write to it until the read's event
// has ended; nothing here depends on a thread.
unsafe impl Send for HostTarget {}

impl HostTarget {
    /// Makes a target of `pieces` relative to `address`.
    ///
    /// # Safety
    /// All pieces must be writable (with [`HostTarget::only_changes`]: readable, and writable where
    /// the arriving bytes differ). Nothing else may use them until the target is dropped.
    pub(crate) unsafe fn new(
        address: *mut u8,
        pieces: Pieces,
        bytes: usize,
        keep: Keep,
    ) -> Box<Self> {
        Box::new(Self { address, pieces, bytes, only_changes: false, _keep: keep })
    }

    /// Writes only bytes that change. Memory that a program gave with `CL_MEM_USE_HOST_PTR` may lie
    /// in read-only pages, such as a table of constants or a file. It already has the right content
    /// as long as no command changes the content.
    ///
    /// Arriving bytes are compared, because their equality cannot be known beforehand: a kernel may
    /// have written through any pointer, and a command enqueued after the read may run before it.
    pub(crate) fn only_changes(mut self: Box<Self>) -> Box<Self> {
        self.only_changes = true;
        self
    }

    /// Makes a target of `length` bytes at `address`.
    ///
    /// # Safety
    /// See [`HostTarget::new`].
    pub(crate) unsafe fn linear(address: *mut u8, length: usize, keep: Keep) -> Box<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(address, Pieces::one(length), length, keep) }
    }
}

/// Describes the bytes of `pieces` for the state machine of `coherence`.
fn shape(address: usize, pieces: &Pieces) -> HostShape {
    let [row, rows, slices] = pieces.shape().map(|n| n as u64);
    let layout = pieces.layout();
    HostShape {
        start: address as u64 + layout.start as u64,
        row,
        rows,
        row_pitch: layout.row_pitch as u64,
        slices,
        slice_pitch: layout.slice_pitch as u64,
    }
}

/// Bytes of the program's memory that a write takes when it is sent.
#[derive(Clone)]
pub(crate) struct HostSource {
    address: *const u8,
    pieces: Pieces,
    bytes: usize,
    _keep: Keep,
}

// SAFETY: The program gave the address so that any thread may read it until the write's event has
// ended; nothing here depends on a thread.
unsafe impl Send for HostSource {}

impl HostSource {
    /// Makes a source of `pieces` relative to `address`.
    ///
    /// # Safety
    /// All pieces must be readable, and nobody may write to them until the command has ended.
    pub(crate) unsafe fn new(address: *const u8, pieces: Pieces, bytes: usize, keep: Keep) -> Self {
        Self { address, pieces, bytes, _keep: keep }
    }

    /// Makes a source of `length` bytes at `address`.
    ///
    /// # Safety
    /// See [`HostSource::new`].
    pub(crate) unsafe fn linear(address: *const u8, length: usize, keep: Keep) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(address, Pieces::one(length), length, keep) }
    }

    /// Describes where the bytes are.
    pub(crate) fn place(&self) -> HostShape {
        shape(self.address.addr(), &self.pieces)
    }

    fn piece(&self, (start, length): (usize, usize)) -> &[u8] {
        // SAFETY: A piece lies in memory that the caller of `new` guaranteed to be readable.
        let from = unsafe { self.address.add(start) };
        // SAFETY: As above; nobody writes to these bytes until the command has ended.
        unsafe { slice::from_raw_parts(from, length) }
    }
}

impl Source for HostSource {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn shape(&self) -> Option<HostShape> {
        Some(self.place())
    }

    fn linear(&self) -> Option<&[u8]> {
        self.pieces.only().map(|piece| self.piece(piece))
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        Box::new(self.pieces.clone().map(|piece| self.piece(piece)))
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        Box::new(self.clone())
    }
}

impl Target for HostTarget {
    fn shape(&self) -> Option<HostShape> {
        Some(shape(self.address.addr(), &self.pieces))
    }

    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (mut at, mut left) = range.ok_or(FrameError::PayloadTooShort)?;
        // These are the peer's numbers; never write outside the read's own range.
        if at.checked_add(left).is_none_or(|end| end > self.bytes) {
            return Err(FrameError::BadPayload("ReadData"));
        }
        let length = self.pieces.length().max(1);
        while left > 0 {
            let (piece, within) = (at / length, at % length);
            let start = self.pieces.nth_offset(piece).ok_or(FrameError::PayloadTooShort)?;
            let now = left.min(length - within);
            // SAFETY: `start` is the offset of a piece of `length` bytes, and `within + now` is at
            // most `length`. So the caller of `new` guarantees that the address is writable.
            let to = unsafe { self.address.add(start + within) };
            if self.only_changes {
                // SAFETY: As above, for `now` bytes.
                unsafe { take_changes(to, now, payload) }?;
            } else {
                // SAFETY: As above; nothing else uses these bytes until the read's event has ended.
                payload.read(unsafe { slice::from_raw_parts_mut(to, now) })?;
            }
            at += now;
            left -= now;
        }
        Ok(())
    }
}

/// Smallest unit of memory protection in bytes.
const PAGE: usize = 4096;
/// Number of bytes taken and compared at a time; they stay in the processor's cache.
const COMPARED: usize = 64 << 10;

/// Takes the next `length` bytes of a payload to `to`, without writing unchanged pages.
///
/// # Safety
/// `length` bytes at `to` must be readable, those that change must be writable, and nothing else
/// may use them meanwhile.
unsafe fn take_changes(
    to: *mut u8,
    length: usize,
    payload: &mut dyn Payload,
) -> Result<(), FrameError> {
    let mut arrived = vec![0; length.min(COMPARED)];
    let mut at = 0;
    while at < length {
        let now = arrived.len().min(length - at);
        let arrived = arrived.get_mut(..now).unwrap_or_default();
        payload.read(arrived)?;
        // SAFETY: `at` is less than `length`.
        let to = unsafe { to.add(at) };
        // SAFETY: these `now` bytes are among the `length` bytes that the caller guarantees.
        unsafe { write_changes(to, arrived) };
        at += now;
    }
    Ok(())
}

/// Writes the bytes to `to`, except to pages that already have this content.
///
/// # Safety
/// `bytes.len()` bytes at `to` must be readable, pages with changes must be writable, and nothing
/// else may use them meanwhile.
unsafe fn write_changes(mut to: *mut u8, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let left_in_page = PAGE - to.addr() % PAGE;
        let (here, rest) = bytes.split_at(left_in_page.min(bytes.len()));
        // SAFETY: The caller guarantees that the bytes of this page are readable.
        let is_there = unsafe { slice::from_raw_parts(to, here.len()) } == here;
        if !is_there {
            // SAFETY: As above; the bytes differ, so the caller guarantees that they are writable,
            // and `here` is our own memory.
            unsafe { ptr::copy_nonoverlapping(here.as_ptr(), to, here.len()) };
        }
        // SAFETY: This is at most the end of the bytes that the caller guarantees.
        to = unsafe { to.add(here.len()) };
        bytes = rest;
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
        let mut target =
            unsafe { HostTarget::new(host.as_mut_ptr(), layout.pieces(region), 12, None) };
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

    #[test]
    fn changes_are_taken_in_any_portions() {
        let old: Vec<u8> = (0..=250).cycle().take(COMPARED * 2 + 100).collect();
        let mut host = old.clone();
        let mut new = old;
        let last = new.len() - 1;
        (new[3], new[last]) = (7, 9);
        // SAFETY: The length is that of the vector.
        let target = unsafe { HostTarget::linear(host.as_mut_ptr(), host.len(), None) };
        let mut target = target.only_changes();
        target.take(0, &mut &new[..5]).unwrap();
        target.take(5, &mut &new[5..]).unwrap();
        drop(target);
        assert!(host == new);
    }

    #[test]
    fn what_is_there_already_is_not_written() {
        static TABLE: [u8; 5000] = [3; 5000];
        // SAFETY: The length is that of the table. The same bytes arrive, so nothing is written.
        let target = unsafe { HostTarget::linear(TABLE.as_ptr().cast_mut(), TABLE.len(), None) };
        target.only_changes().take(0, &mut &[3; 5000][..]).unwrap();
    }
}
