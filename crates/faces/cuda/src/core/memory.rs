//! Device memory that the program allocates and frees.

use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;

use super::arena::LEAVING_BYTES_MAX;
use super::context::Context;
use super::graph::{capture, memory};
use super::{host, platform, stream_list};
use crate::edge::{CuResult, Object as _};

/// Allocates memory of the context's device.
pub(crate) fn allocate(context: &Context, size: u64) -> CuResult<u64> {
    context.device.allocate(size, context.number())
}

/// Implements `cuMemFree`. The memory is used again once all current commands have ended. Waits for
/// them only if much memory is freed and still in use.
pub(crate) fn free(context: &Context, address: u64) -> CuResult {
    if let Some(freed) = memory::free(address) {
        return freed;
    }
    if let Some(freed) = host::free_managed(address) {
        return freed;
    }
    let device = platform::device_of(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if device.check().is_some() {
        // Commands that were sent before must still find the memory allocated.
        capture::synchronize(context)?;
    }
    let busy = stream_list::busy_on(device);
    device.release(address, busy.clone())?;
    if !busy.is_empty() && device.space.leaving() > LEAVING_BYTES_MAX {
        for event in busy {
            _ = event.wait();
        }
    }
    Ok(())
}
