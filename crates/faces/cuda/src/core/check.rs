//! Check mode, which detects invalid addresses of kernels.

use std::sync::{Arc, OnceLock};

use penstock_client::{Given, Queue, Want};
use penstock_cuda_sys::driver::CUDA_ERROR_OUT_OF_MEMORY;
use penstock_process::{Lock, variable};

use super::arena::AddressSpace;
use super::block::{GRAIN_BYTES, MemoryOffset};
use crate::edge::{CuResult, of_error};

/// Returns whether kernels look at each address before they use it.
pub(crate) fn is_checking() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| variable::CHECK.is_on())
}

/// Bitmap of the allocated parts of a device's first arena, for kernels in check mode. It has one
/// bit for each [`GRAIN_BYTES`].
pub(crate) struct CheckBitmap {
    address: u64,
    first: u64,
    located: MemoryOffset,
    queue: Arc<Queue>,
    bits: Lock<Vec<u8>>,
}

impl CheckBitmap {
    /// Makes the bitmap of a device whose memory has just been made. `queue`: a queue of the
    /// device, for writes of the bitmap.
    pub(super) fn new(space: &AddressSpace, queue: Arc<Queue>) -> CuResult<Self> {
        let arenas = space.arenas();
        let arena = arenas.first().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = arena.size / GRAIN_BYTES / 8 + 1;
        // Without an owner, so no context frees it.
        let address = space.allocate(bytes, 0, false)?.address;
        let check = Self {
            address,
            first: arena.base,
            located: space.locate(address, bytes)?,
            queue,
            bits: Lock::new(vec![0; usize::try_from(bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?]),
        };
        let mut all = Vec::new();
        space.each(|start, size| all.push((start, size)));
        for (start, size) in all {
            check.mark(start, size, true)?;
        }
        Ok(check)
    }

    /// Returns the bitmap's address on the device.
    pub(crate) fn bitmap(&self) -> u64 {
        self.address
    }

    pub(super) fn mark(&self, start: u64, size: u64, allocated: bool) -> CuResult {
        let from = start.saturating_sub(self.first) / GRAIN_BYTES;
        let to = from + size.div_ceil(GRAIN_BYTES);
        let mut bits = self.bits.lock();
        let byte = |bit: u64| usize::try_from(bit / 8).unwrap_or(usize::MAX);
        for bit in from..to {
            // Only the first arena is checked.
            let Some(at) = bits.get_mut(byte(bit)) else { return Ok(()) };
            let mask = 1 << (bit % 8);
            *at = if allocated { *at | mask } else { *at & !mask };
        }
        let range = byte(from)..byte(to.max(from + 1) - 1) + 1;
        let changed = bits.get(range.clone()).unwrap_or_default();
        let offset = self.located.offset + range.start as u64;
        self.queue
            .write(&self.located.memory, offset, &Given(changed), &[], Want::Nothing)
            .and_then(|_| self.queue.finish())
            .map_err(|error| of_error(&error))
    }
}
