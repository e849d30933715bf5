//! Buffers in memory that client and worker share. Used if the devices compute on the host's memory
//! and the node is this host.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use penstock_link::Arena;
use penstock_process::Lock;
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Payload};
use range_alloc::RangeAllocator;
use rustc_hash::{FxHashMap, FxHashSet};

/// Buffers take whole pages, so that no two of them share a page.
const PAGE_BYTES: u64 = 4096;

/// Size from which on the pages of a released buffer are returned to the system. Smaller buffers
/// are likely to be reused, and returning and faulting in a page costs more than writing it.
const DISCARD_BYTES_MIN: u64 = 256 << 10;

/// The shared memory of one session.
pub(crate) struct Shared {
    arena: Arc<Arena>,
    parts: Lock<Parts>,
}

struct Parts {
    free: RangeAllocator<u64>,
    /// Number of the program's buffers that have a part.
    taken: usize,
    /// Ranges of buffers that the program has released but the worker may still use.
    leaving: FxHashMap<u64, Range<u64>>,
    /// Buffers that the worker does not have although the program has not released them, because it
    /// could not create them.
    refused: FxHashSet<u64>,
}

/// A buffer's part of the shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    shared: Arc<Shared>,
    range: Range<u64>,
}

impl Shared {
    pub(crate) fn new(arena: Arc<Arena>) -> Arc<Self> {
        let free = RangeAllocator::new(0..arena.bytes() as u64 / PAGE_BYTES * PAGE_BYTES);
        Arc::new(Self {
            arena,
            parts: Lock::new(Parts {
                free,
                taken: 0,
                leaving: FxHashMap::default(),
                refused: FxHashSet::default(),
            }),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.arena.bytes() as u64
    }

    /// Takes a part for a buffer. Returns `None` if no free range is large enough.
    pub(crate) fn take(self: &Arc<Self>, size: u64) -> Option<Part> {
        let mut parts = self.parts.lock();
        let range = parts.free.allocate_range(size.checked_next_multiple_of(PAGE_BYTES)?).ok()?;
        parts.taken += 1;
        drop(parts);
        Some(Part { shared: self.clone(), range })
    }

    /// Notes that the program has released the buffer `mem`. Its part becomes free when the worker
    /// says that it holds nothing of the buffer.
    pub(crate) fn leave(&self, mem: Id<kind::Mem>, part: Part) {
        let mut parts = self.parts.lock();
        parts.taken = parts.taken.saturating_sub(1);
        if parts.refused.remove(&mem.get()) {
            self.clear(&part.range);
            parts.free.free_range(part.range);
        } else {
            parts.leaving.insert(mem.get(), part.range);
        }
    }

    /// Takes back a part of which the worker has never heard.
    pub(crate) fn put_back(&self, part: Part) {
        let mut parts = self.parts.lock();
        parts.taken = parts.taken.saturating_sub(1);
        self.clear(&part.range);
        parts.free.free_range(part.range);
    }

    /// Notes that the worker holds nothing of a buffer.
    pub(crate) fn gone(&self, mem: Id<kind::Mem>) {
        let mut parts = self.parts.lock();
        let Some(range) = parts.leaving.remove(&mem.get()) else {
            // The bound keeps a worker from filling memory here by naming buffers that nobody made.
            if parts.refused.len() < parts.taken {
                parts.refused.insert(mem.get());
            }
            return;
        };
        self.clear(&range);
        parts.free.free_range(range);
    }

    /// Fills a range with zeros before it becomes free, so that a new buffer has the same content
    /// wherever it lives.
    fn clear(&self, range: &Range<u64>) {
        static ZEROS: [u8; 4096] = [0; 4096];
        let size = range.end - range.start;
        if size >= DISCARD_BYTES_MIN {
            self.arena.discard(range.start, size);
        } else {
            for page in (range.start..range.end).step_by(ZEROS.len()) {
                self.arena.write(page, &ZEROS);
            }
        }
    }
}

impl Part {
    /// Returns the offset in the arena.
    pub(crate) fn offset(&self) -> u64 {
        self.range.start
    }

    /// Makes the pages exist as memory of this process. Returns `false` if the host has too few.
    #[must_use]
    pub(crate) fn populate(&self) -> bool {
        self.shared.arena.populate(self.range.start, self.range.end - self.range.start)
    }

    /// Returns whether the kernel can lend the pages to other processes.
    pub(crate) fn is_lendable(&self) -> bool {
        self.shared.arena.is_lendable()
    }

    /// Returns the address in this process of `size` bytes at `offset`.
    pub(crate) fn pointer(&self, offset: u64, size: u64) -> Option<NonNull<u8>> {
        let size = usize::try_from(size).ok()?;
        self.shared.arena.pointer(self.place(offset, size)?, size as u64)
    }

    /// Copies bytes in. Returns `false` if they do not fit.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        self.place(offset, bytes.len()).is_some_and(|place| self.shared.arena.write(place, bytes))
    }

    /// Copies bytes out. Returns `false` if `into` reaches past the end.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.place(offset, into.len()).is_some_and(|place| self.shared.arena.read(place, into))
    }

    /// Returns `size` bytes at `offset` as a payload.
    pub(crate) fn payload(&self, offset: u64, size: u64) -> PartPayload<'_> {
        PartPayload { part: self, offset, left: size }
    }

    fn place(&self, offset: u64, size: usize) -> Option<u64> {
        let start = self.range.start.checked_add(offset)?;
        (start.checked_add(size as u64)? <= self.range.end).then_some(start)
    }
}

/// Bytes of a part that are read like a payload from the link.
pub(crate) struct PartPayload<'a> {
    part: &'a Part,
    offset: u64,
    left: u64,
}

impl Payload for PartPayload<'_> {
    fn left(&self) -> u64 {
        self.left
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        let count = into.len() as u64;
        if count > self.left || !self.part.read(self.offset, into) {
            return Err(FrameError::PayloadTooShort);
        }
        self.offset += count;
        self.left -= count;
        Ok(())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("bytes", &self.arena.bytes()).finish_non_exhaustive()
    }
}
