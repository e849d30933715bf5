//! Bytes on their way between link and device. Large blocks are reused without being cleared: the
//! page faults of a fresh block of 1 MiB cost more than the copy into it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_process::{Guard, Lock};
use penstock_wire::status::Status;

use crate::home::Mapping;

/// Smallest size of blocks that come from the pool; below it the allocator is as fast.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Largest size of blocks that return to the pool. Beside a larger transfer, mapping costs little.
const POOLED_BYTES_MAX: usize = 64 << 20;
/// Most bytes that the pool keeps for reuse: four of the largest blocks.
const POOL_BYTES_MAX: usize = 256 << 20;

/// Pins the pages of a block for a driver until the result is dropped; `None` if that fails.
pub(crate) type Pin = fn(*mut u8, usize) -> Option<Box<dyn Send>>;

static PIN: OnceLock<Pin> = OnceLock::new();

/// From now on, has large blocks pinned.
pub(crate) fn pin_with(pin: Pin) {
    _ = PIN.set(pin);
}

static HELD: AtomicU64 = AtomicU64::new(0);
static POOL: Lock<Pool> = Lock::new(Pool { blocks: Vec::new(), bytes: 0 });

struct Pool {
    blocks: Vec<Pages>,
    bytes: usize,
}

/// Memory of a large block.
struct Pages {
    // Dropped in this order: pinned memory must exist until it is unpinned.
    pinned: Option<Box<dyn Send>>,
    mapping: Mapping,
}

/// Bytes that a command reads or writes, kept until the command has ended.
pub struct Staged {
    block: Block,
    length: usize,
}

enum Block {
    Small(Vec<u8>),
    /// `None` only while the block is dropped.
    Large(Option<Pages>),
}

impl Staged {
    /// Returns `length` bytes of unspecified content, never another client's: the process serves
    /// one.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY`.
    pub fn new(length: usize) -> Result<Self, Status> {
        if length < POOLED_BYTES_MIN {
            return Ok(Self::from(vec![0; length]));
        }
        let capacity = if length <= POOLED_BYTES_MAX { length.next_power_of_two() } else { length };
        let pages = pool().take(capacity);
        let mut pages = match pages {
            Some(pages) => pages,
            None => Pages { pinned: None, mapping: Mapping::zeroed(capacity)? },
        };
        // Pinned once per block: pinning costs as much as a copy or two.
        if pages.pinned.is_none() && capacity <= POOLED_BYTES_MAX {
            pages.pinned = PIN.get().and_then(|pin| pin(pages.mapping.address(), capacity));
        }
        HELD.fetch_add(capacity as u64, Ordering::Relaxed);
        Ok(Self { block: Block::Large(Some(pages)), length })
    }

    /// Whether the bytes are pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(&self.block, Block::Large(Some(pages)) if pages.pinned.is_some())
    }

    /// Returns the number of bytes that the pool keeps for reuse.
    pub fn pooled() -> u64 {
        pool().bytes as u64
    }

    /// Returns the number of bytes staged in this process now, for `limits::STAGED_BYTES_MAX`.
    pub fn held() -> u64 {
        HELD.load(Ordering::Relaxed)
    }
}

impl Default for Staged {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u8>> for Staged {
    fn from(bytes: Vec<u8>) -> Self {
        HELD.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let length = bytes.len();
        Self { block: Block::Small(bytes), length }
    }
}

impl Deref for Staged {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.block {
            Block::Small(bytes) => bytes,
            // SAFETY: the block owns the mapping of at least `length` bytes, cleared by the kernel.
            Block::Large(Some(block)) => unsafe {
                std::slice::from_raw_parts(block.mapping.address(), self.length)
            },
            Block::Large(None) => &[],
        }
    }
}

impl DerefMut for Staged {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.block {
            Block::Small(bytes) => bytes,
            // SAFETY: the block owns the mapping of at least `length` bytes, cleared by the kernel.
            Block::Large(Some(block)) => unsafe {
                std::slice::from_raw_parts_mut(block.mapping.address(), self.length)
            },
            Block::Large(None) => &mut [],
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let held = match &mut self.block {
            Block::Small(bytes) => bytes.len(),
            Block::Large(block) => block.take().map_or(0, |pages| {
                let bytes = pages.mapping.bytes();
                pool().give(pages);
                bytes
            }),
        };
        HELD.fetch_sub(held as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Pool {
    /// Takes a block of exactly this size. Sizes are powers of two, so blocks are reused often.
    fn take(&mut self, bytes: usize) -> Option<Pages> {
        let index = self.blocks.iter().rposition(|block| block.mapping.bytes() == bytes)?;
        self.bytes -= bytes;
        Some(self.blocks.swap_remove(index))
    }

    fn give(&mut self, block: Pages) {
        let bytes = block.mapping.bytes();
        if bytes <= POOLED_BYTES_MAX && self.bytes + bytes <= POOL_BYTES_MAX {
            self.bytes += bytes;
            self.blocks.push(block);
        }
    }
}

fn pool() -> Guard<'static, Pool> {
    POOL.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_sizes_hold_what_is_written() {
        for length in [0, 1, 4095, POOLED_BYTES_MIN, POOLED_BYTES_MIN + 1, POOLED_BYTES_MAX + 4096]
        {
            let mut staged = Staged::new(length).unwrap();
            assert_eq!(staged.len(), length);
            staged.fill(7);
            assert!(staged.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn a_dropped_block_is_used_again() {
        // A size that no other test uses.
        let length = 48 << 20;
        let staged = Staged::new(length).unwrap();
        let first = staged.as_ptr();
        drop(staged);
        assert!(Staged::pooled() >= length as u64);
        assert_eq!(Staged::new(length - 5).unwrap().as_ptr(), first);
    }
}
