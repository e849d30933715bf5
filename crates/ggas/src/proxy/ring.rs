//! The host's side of a PE's ring, apart from where it lies: so that a model checker can have it with words of its own.
//!
//! Position `p` is entry `p % ENTRIES`. Its sequence is `p` while it is free, `p + 1` when a kernel has filled it, and
//! `p + ENTRIES` when it has been taken, which is "free" for the next round. Any work-item fills; this side alone takes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// A word that two sides share.
pub trait Word {
    /// Loads; what the other side wrote before its `release` is seen.
    fn acquire(&self) -> u64;
    /// Stores; the other side's `acquire` sees what was written before.
    fn release(&self, value: u64);
}

impl Word for AtomicU64 {
    fn acquire(&self) -> u64 {
        self.load(Acquire)
    }

    fn release(&self, value: u64) {
        self.store(value, Release);
    }
}

/// Where this side is in the ring.
#[derive(Debug)]
pub struct Reader {
    next: u64,
    entries: u64,
}

impl Reader {
    /// At the start of a ring of so many entries, a power of two.
    pub fn new(entries: u64) -> Self {
        Self { next: 0, entries }
    }

    /// The index of the next entry.
    pub fn index(&self) -> usize {
        // Less than the number of entries, which is a usize.
        usize::try_from(self.next % self.entries).unwrap_or_default()
    }

    /// The position of the next entry, if it is filled. `sequence` is that entry's.
    pub fn filled(&self, sequence: &impl Word) -> Option<u64> {
        (sequence.acquire() == self.next.wrapping_add(1)).then_some(self.next)
    }

    /// Goes on to the entry behind it.
    pub fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the entry of a position back. Entries may be given back in any order.
    pub fn free(&self, sequence: &impl Word, position: u64) {
        sequence.release(position.wrapping_add(self.entries));
    }
}
