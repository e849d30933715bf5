//! Memory of this process that is used by OpenCL or MPI while this process goes on.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;

/// Pages: MPI and drivers copy whole ones fastest.
const ALIGN: usize = 4096;

/// Bytes that stay where they are for the life of the process: a process of the benchmark has a few, for its largest message, and ends when
/// it has measured.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    start: NonNull<u8>,
    bytes: usize,
}

/// Some bytes of a [`Room`], or of a buffer that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

impl Room {
    /// Zero bytes. Each page is touched, so that no measurement does.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(8).next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<[u8; ALIGN]>());
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let room = Self { start, bytes: layout.size() };
        for page in (0..room.bytes).step_by(ALIGN) {
            // SAFETY: within the allocation, which nobody else knows yet.
            unsafe { room.start.add(page).write_volatile(0) };
        }
        room
    }

    /// All of it.
    #[must_use]
    pub fn all(&self) -> Span {
        self.span(0, self.bytes)
    }

    /// A part of it.
    ///
    /// # Panics
    /// If that is not a part of it: a defect of the benchmark.
    #[must_use]
    pub fn span(&self, offset: usize, bytes: usize) -> Span {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a span outside of its room"
        );
        // SAFETY: within the allocation, as just checked.
        Span { start: unsafe { self.start.add(offset) }, bytes }
    }
}

impl Span {
    /// Bytes that a driver gave.
    ///
    /// # Safety
    /// They are there, for reading and writing, as long as this is used.
    pub(crate) unsafe fn of_driver(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Where they begin.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// For who writes or reads them with a system call.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: they are there, and whoever measures works on one message with one thread.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// As above.
    #[expect(clippy::mut_from_ref, reason = "a span is a place in memory, not its owner")]
    #[must_use]
    pub fn as_mut(&self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    /// The first word: the stamp of a message.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.as_slice().first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// The last word, by which a message that is not all there is found; the first one where there is one alone.
    #[must_use]
    pub fn last_stamp(&self) -> u64 {
        self.as_slice().last_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Sets the first and the last word.
    pub fn set_stamps(&self, stamp: u64) {
        if let Some(word) = self.as_mut().first_chunk_mut() {
            *word = stamp.to_le_bytes();
        }
        if let Some(word) = self.as_mut().last_chunk_mut() {
            *word = stamp.to_le_bytes();
        }
    }
}

/// The word at `index` of a message of `seed`: every word of every message is another one.
#[must_use]
pub fn word_of(seed: u64, index: u64) -> u64 {
    // A multiplication by an odd constant (2^64 by the golden ratio) spreads neighbours over all bits.
    (seed << 32 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills with the message of `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (index, word) in (0..).zip(bytes.as_chunks_mut::<8>().0) {
        *word = word_of(seed, index).to_le_bytes();
    }
}

/// Words that are not those of the message of `seed`, from the word `first` on: how many, and the first one with what it should be.
#[must_use]
pub fn differences(bytes: &[u8], seed: u64, first: usize) -> Option<(u64, u64, u64)> {
    let words = (0..).zip(bytes.as_chunks::<8>().0).skip(first);
    let mut wrong = words
        .map(|(index, word)| (u64::from_le_bytes(*word), word_of(seed, index)))
        .filter(|(found, expected)| found != expected);
    let (found, expected) = wrong.next()?;
    Some((1 + wrong.count() as u64, found, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_wrong_bit_is_found() {
        let room = Room::new(4096);
        let span = room.span(8, 1024);
        fill(span.as_mut(), 7);
        assert_eq!(differences(span.as_slice(), 7, 0), None);
        assert!(differences(span.as_slice(), 8, 0).is_some());
        span.as_mut()[1023] ^= 1;
        let (count, found, expected) = differences(span.as_slice(), 7, 0).unwrap();
        assert_eq!((count, found ^ expected), (1, 1 << 56));
        span.set_stamps(99);
        assert_eq!((span.stamp(), span.last_stamp()), (99, 99));
        assert_eq!(differences(span.as_slice(), 7, 0).unwrap().0, 2);
    }

    #[test]
    #[should_panic(expected = "outside of its room")]
    fn no_span_leaves_its_room() {
        _ = Room::new(8).span(4096, 1);
    }
}
