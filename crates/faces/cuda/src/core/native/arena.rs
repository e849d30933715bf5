//! Arenas at addresses that CUDA's own driver chooses.

use std::sync::Arc;

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_client::{Context as PoolContext, Memory};
use penstock_process::notice;

use crate::core::block::Arena;
use crate::core::reserved;
use crate::edge::{CuResult, of_error};

/// Smallest allocation that is asked of the driver, in bytes: each takes about 100 µs.
const GROW_BYTES: u64 = 32 << 20;
/// How often the driver is asked for other addresses if the program already uses those that it
/// returned.
const TRIES_MAX: usize = 4;
/// Message after the last attempt.
const TAKEN: &str = "a device has memory at addresses that this process uses too";

/// Allocates an arena with room for `bytes`. The driver chooses its addresses. Waits for the
/// worker.
pub(crate) fn allocate(context: &Arc<PoolContext>, device: u64, bytes: u64) -> CuResult<Arena> {
    let mut taken = Vec::new();
    loop {
        let memory = |size| {
            Memory::buffer(context, CL_MEM_READ_WRITE, size, None)
                .and_then(|it| Ok((it.device_address()?, it)))
        };
        let wanted = bytes.max(GROW_BYTES);
        // Asks for `bytes` alone if the driver has no room for more.
        let made =
            memory(wanted).or_else(|error| if wanted > bytes { memory(bytes) } else { Err(error) });
        let (base, memory) = match made {
            Ok(made) => made,
            // The rejected arenas may hold all memory of the device. Using one of them is better
            // than failing.
            Err(error) => {
                return taken.pop().inspect(|_| log_taken()).ok_or_else(|| of_error(&error));
            }
        };
        let arena = Arena { base, size: memory.size(), memory, joined: false };
        if reserved::reserve(device, arena.base, arena.size) {
            return Ok(arena);
        }
        if taken.len() == TRIES_MAX {
            log_taken();
            return Ok(arena);
        }
        // Kept until another arena is found, so that the driver does not return the same addresses
        // again.
        taken.push(arena);
    }
}

pub(super) fn log_taken() {
    notice::once_about("addresses", format_args!("{TAKEN}"));
}

/// Frees an arena that nothing uses any more.
pub(crate) fn release(device: u64, arena: Arena) {
    reserved::release(device, arena.base, arena.size);
    drop(arena);
}
