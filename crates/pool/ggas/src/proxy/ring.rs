//! The host's side of a PE's ring, generic over its words, so that a model checker can use its own.
//!
//! Position `p` is entry `p % ENTRIES`. Its sequence is `p` while it is free, `p + 1` when a kernel
//! has filled it, and `p + ENTRIES` when it has been taken, which means "free" for the next round.
//! Any work-item fills entries; only this side takes them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Word that two sides share.
pub trait Word {
    /// Loads with acquire order: sees what the other side wrote before its `release`.
    fn acquire(&self) -> u64;
    /// Stores with release order: the other side's `acquire` sees what was written before.
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

/// Position of this side in the ring.
#[derive(Debug)]
pub struct Reader {
    next: u64,
    entries: u64,
}

impl Reader {
    /// Starts at the beginning of a ring of `entries` entries, a power of two.
    pub fn new(entries: u64) -> Self {
        Self { next: 0, entries }
    }

    /// Returns the index of the next entry.
    pub fn index(&self) -> usize {
        // Less than the number of entries, which is a usize.
        usize::try_from(self.next % self.entries).unwrap_or_default()
    }

    /// Returns the position of the next entry if it is filled. `sequence` belongs to that entry.
    pub fn filled(&self, sequence: &impl Word) -> Option<u64> {
        (sequence.acquire() == self.next.wrapping_add(1)).then_some(self.next)
    }

    /// Moves to the next entry.
    pub fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Gives an entry back. Entries may be given back in any order.
    pub fn free(&self, sequence: &impl Word, position: u64) {
        sequence.release(position.wrapping_add(self.entries));
    }
}
