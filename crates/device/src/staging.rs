//! Bytes on their way between link and device. Large blocks are used again without being cleared: a fresh block of 1 MiB costs
//! more in page faults than the copy into it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_wire::status::Status;

use crate::cuda::Pinned;
use crate::opencl::home::Mapping;

/// From this size on blocks come from the pool; below it the allocator is as fast.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Blocks beyond this size go back to the system: mapping costs little beside such a transfer.
const POOLED_BYTES_MAX: usize = 64 << 20;
/// What the pool keeps for use: four of the largest blocks.
const POOL_BYTES_MAX: usize = 256 << 20;

static HELD: AtomicU64 = AtomicU64::new(0);
static POOL: Mutex<Pool> = Mutex::new(Pool { blocks: Vec::new(), bytes: 0 });

struct Pool {
    blocks: Vec<Pages>,
    bytes: usize,
}

/// A large block's memory.
struct Pages {
    // Dropped in this order: pinned memory must be there until it is not pinned any more.
    pinned: Option<Pinned>,
    mapping: Mapping,
}

/// Bytes that a command reads or writes, kept until it has ended. Dereferences to `[u8]`.
pub struct Staged {
    block: Block,
    length: usize,
}

enum Block {
    Small(Vec<u8>),
    /// `None` only while it is dropped.
    Large(Option<Pages>),
}

impl Staged {
    /// So many bytes of unspecified content, which is never another client's: this process serves only one.
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
        // Once for each block: it costs as much as a copy or two.
        if pages.pinned.is_none() && capacity <= POOLED_BYTES_MAX {
            pages.pinned = Pinned::new(pages.mapping.address(), capacity);
        }
        HELD.fetch_add(capacity as u64, Ordering::Relaxed);
        Ok(Self { block: Block::Large(Some(pages)), length })
    }

    /// Bytes staged in this process now: to be compared with `limits::STAGED_BYTES_MAX`.
    pub fn held() -> u64 {
        HELD.load(Ordering::Relaxed)
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
            // SAFETY: the mapping is ours alone, initialised (the kernel clears pages), and at least this long.
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
            // SAFETY: the mapping is ours alone, initialised (the kernel clears pages), and at least this long.
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
    /// A block of just this size: sizes are powers of two, so blocks fit again.
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

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(Staged::new(length - 5).unwrap().as_ptr(), first);
    }
}
