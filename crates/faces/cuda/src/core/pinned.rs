//! Pinned host memory that a GPU copies by itself. It is memory that the program shares with the
//! worker of a node on the same host, and the worker has registered it with CUDA's own driver. So a
//! copy between such memory and memory of that GPU is one command, and no byte of it is on the
//! link. Kernels do not see the memory.
//!
//! The pool does not know that the command uses memory of the program. So copies of other kinds
//! treat the memory as they treat memory that kernels use (`Context::joint`).

use std::sync::Arc;

use super::block::Block;
use super::device::Device;
use super::native::shared::PAGE_BYTES;
use super::{platform, stream_list};
use crate::edge::{Bytes, CuResult};

/// A block of pinned memory: whole pages, as other memory of `cuMemHostAlloc`.
pub(super) struct PinnedBlock {
    device: Arc<Device>,
    block: Block,
    /// Number of the context that owns the block.
    owner: u64,
    /// Address of the block in this process.
    address: usize,
}

impl PinnedBlock {
    /// Allocates cleared memory. Returns `None` if the device does not copy such memory by itself.
    pub(super) fn new(device: &Arc<Device>, owner: u64, size: usize) -> Option<Self> {
        if !device.is_native {
            return None;
        }
        let pages = (size as u64).checked_next_multiple_of(PAGE_BYTES)?;
        let block = device.pinned.allocate(pages, owner, false).ok()?;
        let address = usize::try_from(block.address).ok()?;
        // SAFETY: the block is mapped here until it is freed. No command and no thread uses it yet.
        let bytes = unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) };
        bytes.ok()?.clear();
        Some(Self { device: device.clone(), block, owner, address })
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn is_of(&self, owner: u64) -> bool {
        self.owner == owner
    }

    /// Frees the block. Its memory is used again when no command of any device can use it any more.
    /// The caller has waited for the commands of the current context.
    pub(super) fn free(self) -> CuResult {
        let all = platform::devices()?.iter();
        let busy = all.flat_map(|device| stream_list::busy_on(device)).collect();
        self.device.pinned.free_block(self.block, busy).map(drop)
    }
}
