//! Memory that OpenCL or MPI use while this process continues.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;

/// Page size: MPI and drivers copy whole pages fastest.
const ALIGN: usize = 4096;

/// Bytes that stay at their place for the life of the process. A benchmark process has a few of
/// these, for its largest message, and ends after its measurement.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    start: NonNull<u8>,
    bytes: usize,
}

/// Some bytes of a [`Room`], or of a mapped buffer.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

impl Room {
    /// Allocates zero bytes. Touches each page, so that no measurement has to.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(8).next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<[u8; ALIGN]>());
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let room = Self { start, bytes: layout.size() };
        for page in (0..room.bytes).step_by(ALIGN) {
            // SAFETY: the page is within the allocation, which no other thread knows yet.
            unsafe { room.start.add(page).write_volatile(0) };
        }
        room
    }

    #[must_use]
    pub fn all(&self) -> Span {
        self.span(0, self.bytes)
    }

    /// Returns a part of the room.
    ///
    /// # Panics
    /// If the range is not in the room, which is a defect of the benchmark.
    #[must_use]
    pub fn span(&self, offset: usize, bytes: usize) -> Span {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a span outside of its room"
        );
        // SAFETY: the range is within the allocation, as just checked.
        Span { start: unsafe { self.start.add(offset) }, bytes }
    }
}

impl Span {
    /// Makes a span of bytes of a driver.
    ///
    /// # Safety
    /// The bytes are valid for reading and writing as long as the span is used.
    pub(crate) unsafe fn of_driver(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes for a system call.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are valid, and only one thread of a measurement works on a message.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// Returns the bytes for a system call that writes them.
    #[expect(clippy::mut_from_ref, reason = "a span is a place in memory, not its owner")]
    #[must_use]
    pub fn as_mut(&self) -> &mut [u8] {
        // SAFETY: as for `as_slice`.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    /// Returns the first word, which is the stamp of a message.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.as_slice().first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Returns the last word, which reveals a message that has not arrived completely. If there is
    /// only one word, it is the first one.
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

/// Returns word `index` of the message of `seed`. Each word of each message is different.
#[must_use]
pub fn word_of(seed: u64, index: u64) -> u64 {
    // Multiplying by an odd constant (2^64 divided by the golden ratio) spreads neighbours over all
    // bits.
    (seed << 32 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills `bytes` with the message of `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (index, word) in (0..).zip(bytes.as_chunks_mut::<8>().0) {
        *word = word_of(seed, index).to_le_bytes();
    }
}

/// The words of a message that differ from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences {
    /// Number of wrong words.
    pub count: u64,
    /// The first wrong word.
    pub found: u64,
    /// What the first wrong word should be.
    pub expected: u64,
}

impl Differences {
    /// Returns what differs in pairs of a word and its expected value, or `None` if all are equal.
    pub fn among(words: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        let mut wrong = words.filter(|(found, expected)| found != expected);
        let (found, expected) = wrong.next()?;
        Some(Self { count: 1 + wrong.count() as u64, found, expected })
    }
}

/// Compares words from `first` on with the message of `seed`.
#[must_use]
pub fn differences(bytes: &[u8], seed: u64, first: usize) -> Option<Differences> {
    let words = (0..).zip(bytes.as_chunks::<8>().0).skip(first);
    Differences::among(words.map(|(index, word)| (u64::from_le_bytes(*word), word_of(seed, index))))
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
        let wrong = differences(span.as_slice(), 7, 0).unwrap();
        assert_eq!((wrong.count, wrong.found ^ wrong.expected), (1, 1 << 56));
        span.set_stamps(99);
        assert_eq!((span.stamp(), span.last_stamp()), (99, 99));
        assert_eq!(differences(span.as_slice(), 7, 0).unwrap().count, 2);
    }

    #[test]
    #[should_panic(expected = "outside of its room")]
    fn no_span_leaves_its_room() {
        _ = Room::new(8).span(4096, 1);
    }
}
