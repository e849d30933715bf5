//! Arenas in memory that the program shares with a worker, which has registered it with CUDA's own
//! driver.

use std::sync::Arc;

use penstock_client::{Context as PoolContext, Memory};
use penstock_cuda_sys::driver::CUDA_ERROR_OUT_OF_MEMORY;

use crate::core::block::Arena;
use crate::edge::CuResult;

/// Drivers register whole pages.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Smallest arena in bytes. The driver needs about a millisecond to register so many pages, and a
/// tenth of that to register one.
const GROW_BYTES: u64 = 4 << 20;

/// Most bytes of free arenas that stay registered for later allocations: as many as eight small
/// arenas have. The host's other programs cannot use them.
pub(crate) const KEPT_BYTES: u64 = 8 * GROW_BYTES;

/// Returns whether the host has memory for `bytes` more now.
pub(crate) fn has_room(bytes: u64) -> bool {
    // If the system does not say it, making the pages shows it.
    penstock_process::host::available_bytes().is_none_or(|available| bytes <= available)
}

/// Returns the size of an arena with room for `bytes`.
pub(crate) fn size_for(bytes: u64) -> CuResult<u64> {
    let whole = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(whole.max(GROW_BYTES))
}

/// Makes an arena of a size that [`size_for`] has returned, at the addresses where this process has
/// it. Waits for the worker.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` if the program shares no memory with the worker, or if the node
/// refuses to register more.
pub(crate) fn allocate(context: &Arc<PoolContext>, size: u64) -> CuResult<Arena> {
    let memory = Memory::shared(context, size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let start = memory.shared_pointer().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let base = start.as_ptr().expose_provenance() as u64;
    Ok(Arena { base, size, memory, joined: false })
}
