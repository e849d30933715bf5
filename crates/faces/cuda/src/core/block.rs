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

/// Maximum number of bytes of free arenas that are kept for later allocations if the driver
/// allocates memory. Arenas beyond that are returned, so that other users of the GPU can have them.
const KEPT_BYTES: u64 = 256 << 20;

/// Where the arenas of a space come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArenaSource {
    /// Buffers of the pool, at addresses that [`super::address`] chooses.
    Pool,
    /// Memory of a GPU, at addresses that CUDA's own driver chooses.
    Driver,
    /// Memory that the program shares with its worker, at the program's addresses.
    Shared,
}

impl ArenaSource {
    /// Returns the most bytes of free arenas that are kept for later allocations.
    pub(super) fn kept_bytes(self) -> u64 {
        match self {
            Self::Pool => u64::MAX,
            Self::Driver => KEPT_BYTES,
            Self::Shared => super::native::shared::KEPT_BYTES,
        }
    }
}
