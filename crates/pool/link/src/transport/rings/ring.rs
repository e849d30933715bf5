//! A ring of bytes in shared memory: one process writes, the other reads.
//!
//! ```text
//! | head | tail | reader sleeps | writer sleeps | data ...            |
//!   0      128    256             384             4096
//! ```
//! `head` counts the bytes taken and `tail` the bytes put; both start at 0 and never wrap. The
//! place of a byte is its number modulo the size of the data. Each word has one writer and its own
//! cache lines.
//!
//! The peer is assumed hostile. Each side keeps its own count in private memory and never reads it
//! back. It reads the peer's count once, checks that the value is possible, and then uses it.
//! Places are masked, so no count leads outside the data. The peer may change bytes while they are
//! copied, which only spoils its own data. No reference to the data is ever made.
//!
//! How a reader sleeps without losing a wake-up (a writer does the same with its own word):
//!
//! ```text
//! reader                         writer
//! asleep = 1                     tail = t          (release)
//! fence (SeqCst)                 fence (SeqCst)
//! tail has moved? do not sleep   asleep == 1? asleep = 0, ring the doorbell
//! poll(doorbell)
//! ```
//! One of the two fences comes first. If it is the reader's, the writer sees `asleep`; if it is the
//! writer's, the reader sees `tail`.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::MapFlags;

use crate::error::LinkError;
use crate::piece::Piece;
use crate::sealed;

/// Size in bytes of a ring's data, per direction. With a ring below about 2 MiB the writer waits
/// whenever its reader is off the processor. A ring that exceeds the shared last-level cache (32
/// MiB and more on servers) slows both copies to the speed of the memory. 4 MiB hold 40,000
/// launches, so a burst of launches does not fill the ring.
pub(crate) const RING_BYTES: usize = 4 << 20;

/// Smallest ring in bytes that a peer may offer. The largest head of a frame, with its 65,535
/// waits, is below 1 MiB.
pub(crate) const RING_BYTES_MIN: usize = 1 << 20;
/// Largest ring in bytes that a peer may offer; its pages also cost this side memory.
const RING_BYTES_MAX: usize = 256 << 20;

/// Number of bytes after which each side reports its progress within a long payload, so that both
/// sides copy at the same time. Smaller steps cost cache misses on the counts; larger steps leave
/// the other side waiting.
pub(crate) const STEP_BYTES: usize = 64 << 10;

const HEAD_AT: usize = 0;
const TAIL_AT: usize = 128;
const READER_SLEEPS_AT: usize = 256;
const WRITER_SLEEPS_AT: usize = 384;
/// The data starts on a page boundary.
pub(crate) const DATA_AT: usize = 4096;

#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    data_bytes: usize,
    /// The mapping, if the ring lies in a region. Otherwise this value unmaps the ring.
    piece: Option<Piece>,
}

// SAFETY: the mapping belongs to this value until it is dropped, and is accessed only through
// atomics and raw copies.
unsafe impl Send for Map {}
// SAFETY: as above; `Writer` and `Reader`, of which one each exists, define who writes which part.
unsafe impl Sync for Map {}

/// Makes the memory of a ring.
pub(crate) fn create(data_bytes: usize) -> Result<OwnedFd, LinkError> {
    sealed::create("penstock-ring", DATA_AT + data_bytes)
}

impl Map {
    /// Maps a ring that this side or the peer made, after checking that it is one.
    pub(crate) fn new(memory: &OwnedFd) -> Result<Arc<Self>, LinkError> {
        let bytes = sealed::size(memory)?;
        let data_bytes =
            bytes.checked_sub(DATA_AT).ok_or(LinkError::Ring("its size is invalid"))?;
        if !data_bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&data_bytes)
        {
            return Err(LinkError::Ring("its size is not within the limits"));
        }
        let base = sealed::map(memory, bytes, 0, MapFlags::empty())?;
        Ok(Arc::new(Self { base, data_bytes, piece: None }))
    }

    /// Makes a ring of a piece of a region that has `DATA_AT` and `data_bytes` bytes.
    pub(crate) fn of_piece(piece: Piece, data_bytes: usize) -> Result<Arc<Self>, LinkError> {
        if piece.window.bytes() != DATA_AT + data_bytes || !data_bytes.is_power_of_two() {
            return Err(LinkError::Ring("its size is invalid"));
        }
        Ok(Arc::new(Self { base: piece.window.base(), data_bytes, piece: Some(piece) }))
    }

    /// Returns the number of bytes that the writer has told of.
    pub(crate) fn told(&self) -> u64 {
        self.count(TAIL_AT).load(Ordering::Acquire)
    }

    /// Returns whether the writer finds no room for `bytes` bytes.
    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        let taken = self.count(HEAD_AT).load(Ordering::Acquire);
        self.told().wrapping_sub(taken).saturating_add(bytes as u64) > self.data_bytes as u64
    }

    fn count(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < DATA_AT && at.is_multiple_of(8));
        // SAFETY: `at` is one of the constants above, within the first page of the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped as long as `self` lives, and used only as an atomic. Any bits are
        // valid.
        unsafe { word.cast().as_ref() }
    }

    fn flag(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < DATA_AT && at.is_multiple_of(4));
        // SAFETY: `at` is one of the constants above, within the first page of the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped as long as `self` lives, and used only as an atomic. All bits are
        // valid.
        unsafe { word.cast().as_ref() }
    }

    /// Returns the place of byte `number`, and the number of bytes from there to the ring's end.
    fn place(&self, number: u64) -> (NonNull<u8>, usize) {
        #[expect(clippy::cast_possible_truncation, reason = "masked to below data_bytes, a usize")]
        let offset = (number & (self.data_bytes as u64 - 1)) as usize;
        // SAFETY: the offset is below `data_bytes`, and the mapping has `DATA_AT` bytes more.
        (unsafe { self.base.add(DATA_AT + offset) }, self.data_bytes - offset)
    }

    /// Copies at most `data_bytes` bytes into the ring.
    fn put(&self, number: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.data_bytes);
        let (place, to_end) = self.place(number);
        let (first, second) = bytes.split_at(bytes.len().min(to_end));
        // SAFETY: `first` fits before the ring's end. The peer may write there at the same time;
        // the bytes are then undefined, and nothing on this side depends on them.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), place.as_ptr(), first.len()) };
        let (start, _) = self.place(0);
        // SAFETY: `second` is shorter than the data, as the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(second.as_ptr(), start.as_ptr(), second.len()) };
    }

    /// Copies at most `data_bytes` bytes out of the ring.
    fn get(&self, number: u64, into: &mut [u8]) {
        debug_assert!(into.len() <= self.data_bytes);
        let (place, to_end) = self.place(number);
        let (first, second) = into.split_at_mut(into.len().min(to_end));
        // SAFETY: `first` fits before the ring's end. The peer may write there at the same time;
        // the bytes are then undefined, and are checked like all bytes of a peer after the copy.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), first.as_mut_ptr(), first.len()) };
        let (start, _) = self.place(0);
        // SAFETY: `second` is shorter than the data, as the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), second.as_mut_ptr(), second.len()) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.piece.is_some() {
            return;
        }
        // SAFETY: `new` made this mapping with this length; all users held the `Arc` that ends now.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), DATA_AT + self.data_bytes) };
    }
}

/// Writing end of a ring.
#[derive(Debug)]
pub(crate) struct Writer {
    map: Arc<Map>,
    /// Number of bytes put; the reader knows of those up to `told`.
    tail: u64,
    told: u64,
    /// Number of bytes that the reader had taken at the last look.
    head: u64,
}

impl Writer {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        Self { map, tail: 0, told: 0, head: 0 }
    }

    /// Returns the number of free bytes. Reads the reader's count again if fewer than `enough`
    /// bytes were free at the last look.
    pub(crate) fn room(&mut self, enough: usize) -> Result<usize, LinkError> {
        let size = self.map.data_bytes as u64;
        if size - (self.tail - self.head) < enough as u64 {
            let head = self.map.count(HEAD_AT).load(Ordering::Acquire);
            // The reader cannot have taken more than it was told of, and its count never decreases.
            if head < self.head || head > self.told {
                return Err(LinkError::Ring("the reader's count is impossible"));
            }
            self.head = head;
        }
        // At most `size`, which is a usize.
        Ok(usize::try_from(size - (self.tail - self.head)).unwrap_or(0))
    }

    /// Puts bytes that fit, without telling the reader.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.map.put(self.tail, bytes);
        self.tail += bytes.len() as u64;
    }

    /// Returns the number of bytes that were put but not yet told.
    pub(crate) fn untold(&self) -> usize {
        usize::try_from(self.tail - self.told).unwrap_or(usize::MAX)
    }

    /// Tells the reader of all bytes put. Returns `true` if the reader sleeps; then the doorbell
    /// must be rung.
    #[must_use]
    pub(crate) fn tell(&mut self) -> bool {
        if self.told == self.tail {
            return false;
        }
        self.told = self.tail;
        self.map.count(TAIL_AT).store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        wakes(self.map.flag(READER_SLEEPS_AT))
    }

    /// Announces a sleep until there is room. The caller must look once more before it sleeps.
    pub(crate) fn announce_sleep(&self) {
        self.map.flag(WRITER_SLEEPS_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announced sleep.
    pub(crate) fn awake(&self) {
        self.map.flag(WRITER_SLEEPS_AT).store(0, Ordering::Relaxed);
    }
}

/// Reading end of a ring.
#[derive(Debug)]
pub(crate) struct Reader {
    map: Arc<Map>,
    /// Number of bytes taken; the writer knows of those up to `told`.
    head: u64,
    told: u64,
    /// Number of bytes that the writer had put at the last look.
    tail: u64,
}

impl Reader {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        Self { map, head: 0, told: 0, tail: 0 }
    }

    /// Returns the size of the data in bytes.
    pub(crate) fn size(&self) -> usize {
        self.map.data_bytes
    }

    /// Returns the number of available bytes. Reads the writer's count again if fewer than `enough`
    /// bytes were available at the last look.
    pub(crate) fn there(&mut self, enough: usize) -> Result<usize, LinkError> {
        if self.tail - self.head < enough as u64 {
            let tail = self.map.count(TAIL_AT).load(Ordering::Acquire);
            // The writer's count never decreases, and it knows only the progress it was told.
            if tail < self.tail || tail - self.told > self.map.data_bytes as u64 {
                return Err(LinkError::Ring("the writer's count is impossible"));
            }
            self.tail = tail;
        }
        // At most the size of the data, which is a usize.
        Ok(usize::try_from(self.tail - self.head).unwrap_or(0))
    }

    /// Copies available bytes without taking them. Starts `skip` bytes after the next one.
    pub(crate) fn copy(&self, skip: usize, into: &mut [u8]) {
        self.map.get(self.head + skip as u64, into);
    }

    /// Takes available bytes without telling the writer.
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes as u64 <= self.tail - self.head);
        self.head += bytes as u64;
    }

    /// Returns the number of bytes that were taken but not yet told.
    pub(crate) fn untold(&self) -> usize {
        usize::try_from(self.head - self.told).unwrap_or(usize::MAX)
    }

    /// Tells the writer of all bytes taken. Returns `true` if the writer sleeps; the caller must
    /// then ring the doorbell.
    #[must_use]
    pub(crate) fn tell(&mut self) -> bool {
        if self.told == self.head {
            return false;
        }
        self.told = self.head;
        self.map.count(HEAD_AT).store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        wakes(self.map.flag(WRITER_SLEEPS_AT))
    }

    /// Announces a sleep until there are bytes. The caller must look once more before it sleeps.
    pub(crate) fn announce_sleep(&self) {
        self.map.flag(READER_SLEEPS_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announced sleep.
    pub(crate) fn awake(&self) {
        self.map.flag(READER_SLEEPS_AT).store(0, Ordering::Relaxed);
    }
}

/// Returns whether the other side sleeps, and clears its flag: each sleep is reported once.
fn wakes(sleeps: &AtomicU32) -> bool {
    sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    fn pair() -> (Writer, Reader, Arc<Map>) {
        let memory = create(RING_BYTES_MIN).unwrap();
        let raw = Map::new(&memory).unwrap();
        (Writer::new(Map::new(&memory).unwrap()), Reader::new(Map::new(&memory).unwrap()), raw)
    }

    #[test]
    fn bytes_come_out_in_order_around_the_end() {
        let (mut writer, mut reader, _) = pair();
        let mut numbers = (0..=u8::MAX).cycle();
        let mut expected = (0..=u8::MAX).cycle();
        for round in 0..5_000_usize {
            let bytes: Vec<u8> = numbers.by_ref().take(round % 3_001).collect();
            assert!(writer.room(bytes.len()).unwrap() >= bytes.len());
            writer.put(&bytes);
            let _ = writer.tell();
            let there = reader.there(bytes.len()).unwrap();
            assert_eq!(there, bytes.len());
            let mut got = vec![0; there];
            reader.copy(0, &mut got);
            reader.take(there);
            let _ = reader.tell();
            assert!(got.into_iter().eq(expected.by_ref().take(there)));
        }
    }

    #[test]
    fn a_full_ring_has_no_room_and_an_empty_one_no_bytes() {
        let (mut writer, mut reader, _) = pair();
        assert_eq!(reader.there(1).unwrap(), 0);
        let size = reader.size();
        writer.put(&vec![1; size]);
        assert_eq!(writer.room(1).unwrap(), 0);
        assert_eq!(reader.there(1).unwrap(), 0, "the reader saw bytes before it was told of them");
        let _ = writer.tell();
        assert_eq!(reader.there(1).unwrap(), size);
        reader.take(10);
        assert_eq!(writer.room(1).unwrap(), 0, "the writer saw room before it was told of it");
        let _ = reader.tell();
        assert_eq!(writer.room(1).unwrap(), 10);
    }

    #[test]
    fn impossible_counts_are_refused() {
        for evil in [RING_BYTES_MIN as u64 + 1, u64::MAX, 1 << 63] {
            let (_, mut reader, raw) = pair();
            raw.count(TAIL_AT).store(evil, Ordering::Relaxed);
            assert!(reader.there(1).is_err(), "{evil}");
        }
        let (mut writer, mut reader, raw) = pair();
        writer.put(&[1; 100]);
        let _ = writer.tell();
        assert_eq!(reader.there(100).unwrap(), 100);
        raw.count(TAIL_AT).store(50, Ordering::Relaxed);
        assert!(reader.there(101).is_err(), "a count that decreased was accepted");
        for evil in [101, u64::MAX] {
            let (mut writer, _, raw) = pair();
            writer.put(&[1; 100]);
            let _ = writer.tell();
            raw.count(HEAD_AT).store(evil, Ordering::Relaxed);
            assert!(writer.room(RING_BYTES_MIN).is_err(), "{evil}");
        }
    }

    #[test]
    fn each_sleep_is_rung_for_once() {
        let (mut writer, mut reader, _) = pair();
        writer.put(&[1]);
        assert!(!writer.tell());
        reader.announce_sleep();
        writer.put(&[1]);
        assert!(writer.tell());
        writer.put(&[1]);
        assert!(!writer.tell());
        assert_eq!(reader.there(1).unwrap(), 3);
        reader.take(3);
        writer.announce_sleep();
        assert!(reader.tell());
        assert!(!reader.tell());
    }

    #[test]
    fn memory_that_is_no_ring_is_refused() {
        let unsealed =
            rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, (DATA_AT + RING_BYTES_MIN) as u64).unwrap();
        assert!(Map::new(&unsealed).is_err());
        assert!(Map::new(&create(RING_BYTES_MIN / 2).unwrap()).is_err());
        assert!(Map::new(&create(RING_BYTES_MIN + 4096).unwrap()).is_err());
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(Map::new(&file).is_err());
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(Map::new(&pipe).is_err());
    }
}
