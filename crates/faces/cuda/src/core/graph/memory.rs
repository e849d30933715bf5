//! Memory nodes of graphs. A node gets its address and its memory when it is added to the graph,
//! and every launch uses this memory.
//!
//! The device keeps the memory as long as the graph or an executable graph of it exists. A separate
//! record says whether the program holds the memory, because the program may free it without the
//! graph.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use crate::core::block::Block;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::stream_list;
use crate::edge::{CuResult, Object as _};

/// Memory of one node.
pub(crate) struct GraphMemory {
    device: Arc<Device>,
    block: Block,
    pub(crate) size: u64,
}

struct MemoryRecord {
    memory: Weak<GraphMemory>,
    device: usize,
    size: u64,
    /// Set while the program holds the memory, which then outlives the graph.
    held: Option<Arc<GraphMemory>>,
}

static KNOWN: Lock<BTreeMap<u64, MemoryRecord>> = Lock::new(BTreeMap::new());
/// Number of entries in [`KNOWN`]. Most programs have none and skip the lookup.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn known() -> MutexGuard<'static, BTreeMap<u64, MemoryRecord>> {
    KNOWN.lock()
}

impl GraphMemory {
    /// Allocates memory for a node.
    pub(crate) fn new(context: &Context, device: &Arc<Device>, size: u64) -> CuResult<Arc<Self>> {
        context.check()?;
        let block = device.allocate_block(size, context.number())?;
        let memory = Arc::new(Self { device: device.clone(), block, size });
        let entry = MemoryRecord {
            memory: Arc::downgrade(&memory),
            device: device.ordinal,
            size,
            held: None,
        };
        let old = known().insert(block.address, entry);
        // An old entry is left from a context that has ended.
        if old.is_none() {
            COUNT.fetch_add(1, Ordering::AcqRel);
        }
        drop(old);
        Ok(memory)
    }

    pub(crate) fn address(&self) -> u64 {
        self.block.address
    }

    /// Returns the number of its device.
    pub(crate) fn device(&self) -> CUdevice {
        self.device.number()
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let mut all = known();
        if all
            .get(&self.block.address)
            .is_some_and(|known| std::ptr::eq(known.memory.as_ptr(), self))
        {
            all.remove(&self.block.address);
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
        drop(all);
        // The memory may be gone already, with its context.
        _ = self.device.release_block(self.block, stream_list::busy_on(&self.device));
    }
}

/// Notes that the program holds the memory.
pub(super) fn hold(memory: &Arc<GraphMemory>) -> CuResult {
    let mut all = known();
    let known = all.get_mut(&memory.address()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    known.held = Some(memory.clone());
    Ok(())
}

/// Returns whether the program holds the memory.
pub(super) fn is_held(memory: &GraphMemory) -> bool {
    known().get(&memory.address()).is_some_and(|known| known.held.is_some())
}

/// Returns whether memory of a graph begins at this address.
pub(crate) fn is_address(address: u64) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && known().contains_key(&address)
}

/// Frees the program's memory of a graph at this address. Returns `None` if no graph has memory
/// there.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the program does not hold the memory.
pub(crate) fn free(address: u64) -> Option<CuResult> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut all = known();
    let held = all.get_mut(&address)?.held.take();
    drop(all);
    // The graph may be gone already. Then this drops the last reference.
    Some(held.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE))
}

/// Returns the bytes of graphs on a device: those that programs hold, and all.
pub(crate) fn bytes(device: &Device) -> (u64, u64) {
    let (mut used, mut reserved) = (0, 0);
    for known in known().values().filter(|known| known.device == device.ordinal) {
        reserved += known.size;
        used += if known.held.is_some() { known.size } else { 0 };
    }
    (used, reserved)
}

impl fmt::Debug for GraphMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphMemory")
            .field("address", &self.block.address)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
