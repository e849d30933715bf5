//! Pieces of a device's memory: arenas, blocks in them, and positions.

use std::sync::Arc;

use penstock_client::Memory;

/// Allocations begin at multiples of this number of bytes: "The allocated memory is suitably
/// aligned for any kind of variable", and programs rely on 256. Check mode has one bit for each
/// grain.
pub(crate) const GRAIN_BYTES: u64 = 256;

/// An allocation. The serial lets only its owner free it: an old copy of the address is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(super) serial: u64,
}

/// One buffer of the pool, in which memory is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) memory: Arc<Memory>,
    /// Whether the program can see its bytes at their device addresses (`crate::edge::window`).
    pub(crate) joined: bool,
}

/// A position in an arena.
#[derive(Clone, Debug)]
pub(crate) struct MemoryOffset {
    pub(crate) memory: Arc<Memory>,
    pub(crate) offset: u64,
}
