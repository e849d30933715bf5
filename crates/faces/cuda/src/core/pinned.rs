//! Pinned host memory that a GPU copies by itself. It is memory that the program shares with the
//! worker of a node on the same host, and the worker has registered it with CUDA's own driver. So a
//! copy between such memory and memory of that GPU is one command, and no byte of it is on the
//! link. Kernels do not see the memory.
//!
//! The pool does not know that the command uses memory of the program. So all copies of a block are
//! of this kind, or all of them are of the kinds that move plain memory of the program: the first
//! copy that the device cannot do by itself makes the block plain for good
//! ([`super::own_copy`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_client::Event;
use penstock_process::SharedLock;

use super::block::Block;
use super::device::Device;
use super::native::shared::PAGE_BYTES;
use super::stream_list;
use crate::edge::{Bytes, CuResult};

/// A block of pinned memory: whole pages, as other memory of `cuMemHostAlloc`.
pub(super) struct PinnedBlock {
    device: Arc<Device>,
    block: Block,
    /// Number of the context that owns the block.
    owner: u64,
    /// Address of the block in this process.
    address: usize,
    mover: SharedLock<Mover>,
}

/// Who moves the bytes of a block.
enum Mover {
    /// Its device.
    Device {
        /// Whether the device has ever done it.
        has_moved: AtomicBool,
    },
    /// The client, as for plain memory.
    Client {
        /// The ends of all commands that were open on the device when the client took over.
        open: Vec<Event>,
    },
}

impl PinnedBlock {
    /// Allocates cleared memory. Returns `None` if the device does not copy such memory by itself.
    pub(super) fn new(device: &Arc<Device>, owner: u64, size: usize) -> Option<Arc<Self>> {
        if !device.is_native {
            return None;
        }
        let pages = (size as u64).checked_next_multiple_of(PAGE_BYTES)?;
        let block = device.pinned.allocate(pages, owner, false).ok()?;
        let address = usize::try_from(block.address).ok()?;
        // SAFETY: the block is mapped here until it is freed. No command and no thread uses it yet.
        let bytes = unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) };
        bytes.ok()?.clear();
        let mover = SharedLock::new(Mover::Device { has_moved: AtomicBool::new(false) });
        Some(Arc::new(Self { device: device.clone(), block, owner, address, mover }))
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    pub(super) fn is_of(&self, owner: u64) -> bool {
        self.owner == owner
    }

    /// Calls `send`, which sends a copy that the device does by itself. Returns `None` without the
    /// call if the client moves the bytes.
    pub(super) fn moved_by_device<T>(&self, send: impl FnOnce() -> T) -> Option<T> {
        // Held until the copy is sent, so that the copy is among the open commands if the client
        // takes over.
        let mover = self.mover.read();
        let Mover::Device { has_moved } = &*mover else { return None };
        has_moved.store(true, Ordering::Relaxed);
        Some(send())
    }

    /// Makes the block plain, and waits for the copies that the device may still do by itself.
    pub(super) fn leave_to_client(&self) {
        let open = self.taken_over();
        // Without the lock, because other threads may have to send before those commands can end.
        for event in &open {
            _ = event.wait();
        }
        if !open.is_empty() {
            *self.mover.write() = Mover::Client { open: Vec::new() };
        }
    }

    /// Has the client move the bytes from now on. Returns the ends of the commands that the
    /// client's next command must wait for.
    fn taken_over(&self) -> Vec<Event> {
        if let Mover::Client { open } = &*self.mover.read() {
            return open.clone();
        }
        let mut mover = self.mover.write();
        let open = match &*mover {
            Mover::Client { open } => return open.clone(),
            Mover::Device { has_moved } if has_moved.load(Ordering::Relaxed) => {
                stream_list::busy_on(&self.device)
            }
            Mover::Device { .. } => Vec::new(),
        };
        *mover = Mover::Client { open: open.clone() };
        open
    }

    /// Frees the block. Its memory is used again when no copy that the device does by itself can
    /// use it any more. The caller has waited for all other commands that use it.
    pub(super) fn free(&self) -> CuResult {
        self.device.pinned.free_block(self.block, self.taken_over()).map(drop)
    }
}
