//! A ring of bytes in memory that two processes share: one writes, one reads.
//!
//! ```text
//! | head | tail | reader sleeps | writer sleeps | data ...            |
//!   0      128    256             384             4096
//! ```
//! `head` counts the bytes taken, `tail` the bytes put, both from 0 on without end; a byte's place is its number modulo the size
//! of the data. Each word has one writer, and lies on cache lines of its own.
//!
//! The peer is hostile. Each side keeps its own count in its own memory and never reads it back; the other's count is read
//! once, checked against what is possible, and used. Places are masked, so no count leads outside. Bytes may change
//! while they are copied; they are the peer's to spoil. No reference to the data is ever made.
//!
//! Sleeping without a lost wake-up, for a reader (a writer does the same with its own word):
//!
//! ```text
//! reader                         writer
//! asleep = 1                     tail = t          (release)
//! fence (SeqCst)                 fence (SeqCst)
//! tail has moved? do not sleep   asleep == 1? asleep = 0, ring the doorbell
//! poll(doorbell)
//! ```
//! Of the two fences one comes first. If it is the reader's, the writer sees `asleep`; if the writer's, the reader sees `tail`.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::MapFlags;

use crate::error::LinkError;
use crate::sealed;

/// Bytes of a ring's data, for each direction. A ring smaller than some 2 MiB makes a writer wait whenever its reader is off
/// the processor; one that leaves the last-level cache (32 MiB and more on servers, shared by all) slows both copies to
/// the memory's pace. 4 MiB also holds 40,000 launches, so that a burst of them meets no full ring.
pub(crate) const RING_BYTES: usize = 4 << 20;

/// The least that a peer may offer, in bytes: the largest head of a frame, with its 65,535 waits, is under 1 MiB.
const RING_BYTES_MIN: usize = 1 << 20;
/// The most, in bytes: the pages are ours to pay for, too.
const RING_BYTES_MAX: usize = 256 << 20;

/// In the middle of a long payload, each side tells the other of its progress after so many bytes, so that both copy at
/// the same time. Smaller steps cost cache misses on the counts; larger ones leave the other side waiting.
pub(crate) const STEP_BYTES: usize = 64 << 10;

const HEAD_AT: usize = 0;
const TAIL_AT: usize = 128;
const READER_SLEEPS_AT: usize = 256;
const WRITER_SLEEPS_AT: usize = 384;
/// One page, so that the data starts on one.
const DATA_AT: usize = 4096;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value until it is dropped, and is used through atomics and raw copies only.
unsafe impl Send for Map {}
// SAFETY: as above; who may write which part is the business of `Writer` and `Reader`, each of which exists once.
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
            bytes.checked_sub(DATA_AT).ok_or(LinkError::Ring("its size is nonsense"))?;
        if !data_bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&data_bytes)
        {
            return Err(LinkError::Ring("its size is not within the limits"));
        }
        let base = sealed::map(memory, bytes, MapFlags::empty())?;
        Ok(Arc::new(Self { base, data_bytes }))
    }

    fn count(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < DATA_AT && at.is_multiple_of(8));
        // SAFETY: `at` is one of the constants above, within the first page of the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped as long as `self` lives, and used as an atomic only. Any bits are a value.
        unsafe { word.cast().as_ref() }
    }

    fn flag(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < DATA_AT && at.is_multiple_of(4));
        // SAFETY: `at` is one of the constants above, within the first page of the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: aligned, mapped as long as `self` lives, and used as an atomic only. Any bits are a value.
        unsafe { word.cast().as_ref() }
    }

    /// The data from the byte with this number on, and the bytes up to the ring's end.
    fn place(&self, number: u64) -> (NonNull<u8>, usize) {
        #[expect(clippy::cast_possible_truncation, reason = "masked to below data_bytes, a usize")]
        let offset = (number & (self.data_bytes as u64 - 1)) as usize;
        // SAFETY: the offset is below `data_bytes`, and the mapping has `DATA_AT + data_bytes` bytes.
        (unsafe { self.base.add(DATA_AT + offset) }, self.data_bytes - offset)
    }

    /// Copies in; at most `data_bytes`.
    fn put(&self, number: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.data_bytes);
        let (place, to_end) = self.place(number);
        let (first, second) = bytes.split_at(bytes.len().min(to_end));
        // SAFETY: `first` fits before the ring's end. The peer may write there at the same time: then the bytes are
        // anything, and nothing depends on them.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), place.as_ptr(), first.len()) };
        let (start, _) = self.place(0);
        // SAFETY: `second` is shorter than the data, by the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(second.as_ptr(), start.as_ptr(), second.len()) };
    }

    /// Copies out; at most `data_bytes`.
    fn get(&self, number: u64, into: &mut [u8]) {
        debug_assert!(into.len() <= self.data_bytes);
        let (place, to_end) = self.place(number);
        let (first, second) = into.split_at_mut(into.len().min(to_end));
        // SAFETY: `first` fits before the ring's end. The peer may write there at the same time: then the bytes are
        // anything, and are checked, as bytes of a peer, after they were copied.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), first.as_mut_ptr(), first.len()) };
        let (start, _) = self.place(0);
        // SAFETY: `second` is shorter than the data, by the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), second.as_mut_ptr(), second.len()) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, with its length; all users held the `Arc` that ends now.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), DATA_AT + self.data_bytes) };
    }
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    map: Arc<Map>,
    /// Bytes put, and told to the reader up to `told`.
    tail: u64,
    told: u64,
    /// Bytes that the reader has taken, when last looked.
    head: u64,
}

impl Writer {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        Self { map, tail: 0, told: 0, head: 0 }
    }

    /// Bytes free; looks anew if fewer than `enough` were when last looked.
    pub(crate) fn room(&mut self, enough: usize) -> Result<usize, LinkError> {
        let size = self.map.data_bytes as u64;
        if size - (self.tail - self.head) < enough as u64 {
            let head = self.map.count(HEAD_AT).load(Ordering::Acquire);
            // The reader can have taken no more than was told, and takes nothing back.
            if head < self.head || head > self.told {
                return Err(LinkError::Ring("the reader's count is impossible"));
            }
            self.head = head;
        }
        // At most `size`, a usize.
        Ok(usize::try_from(size - (self.tail - self.head)).unwrap_or(0))
    }

    /// Puts bytes for which there is room, without telling the reader.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.map.put(self.tail, bytes);
        self.tail += bytes.len() as u64;
    }

    /// Bytes put but not told.
    pub(crate) fn untold(&self) -> usize {
        usize::try_from(self.tail - self.told).unwrap_or(usize::MAX)
    }

    /// Tells the reader of all that was put. `true`: it sleeps, so the doorbell must be rung.
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

    /// Announces that this side will sleep until there is room. It must look once more before it does.
    pub(crate) fn announce_sleep(&self) {
        self.map.flag(WRITER_SLEEPS_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back.
    pub(crate) fn awake(&self) {
        self.map.flag(WRITER_SLEEPS_AT).store(0, Ordering::Relaxed);
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    map: Arc<Map>,
    /// Bytes taken, and told to the writer up to `told`.
    head: u64,
    told: u64,
    /// Bytes that the writer has put, when last looked.
    tail: u64,
}

impl Reader {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        Self { map, head: 0, told: 0, tail: 0 }
    }

    /// Bytes of data.
    pub(crate) fn size(&self) -> usize {
        self.map.data_bytes
    }

    /// Bytes there; looks anew if fewer than `enough` were when last looked.
    pub(crate) fn there(&mut self, enough: usize) -> Result<usize, LinkError> {
        if self.tail - self.head < enough as u64 {
            let tail = self.map.count(TAIL_AT).load(Ordering::Acquire);
            // The writer takes nothing back, and knows only what it was told of our progress.
            if tail < self.tail || tail - self.told > self.map.data_bytes as u64 {
                return Err(LinkError::Ring("the writer's count is impossible"));
            }
            self.tail = tail;
        }
        // At most the size of the data, a usize.
        Ok(usize::try_from(self.tail - self.head).unwrap_or(0))
    }

    /// Copies bytes that are there, from `skip` bytes after the next one on, without taking them.
    pub(crate) fn copy(&self, skip: usize, into: &mut [u8]) {
        self.map.get(self.head + skip as u64, into);
    }

    /// Takes bytes that are there, without telling the writer.
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes as u64 <= self.tail - self.head);
        self.head += bytes as u64;
    }

    /// Bytes taken but not told.
    pub(crate) fn untold(&self) -> usize {
        usize::try_from(self.head - self.told).unwrap_or(usize::MAX)
    }

    /// Tells the writer of all that was taken. `true`: it sleeps, so the doorbell must be rung.
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

    /// Announces that this side will sleep until there are bytes. It must look once more before it does.
    pub(crate) fn announce_sleep(&self) {
        self.map.flag(READER_SLEEPS_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back.
    pub(crate) fn awake(&self) {
        self.map.flag(READER_SLEEPS_AT).store(0, Ordering::Relaxed);
    }
}

/// Whether the other side sleeps; it is asked once per sleep.
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
        assert_eq!(reader.there(1).unwrap(), 0, "told too early");
        let _ = writer.tell();
        assert_eq!(reader.there(1).unwrap(), size);
        reader.take(10);
        assert_eq!(writer.room(1).unwrap(), 0, "told too early");
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
        assert!(reader.there(101).is_err(), "bytes were taken back");
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
