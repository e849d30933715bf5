//! Memory pools: each device has a default pool, and programs may create more. All of them allocate
//! from the device's memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_cuda_sys::driver::*;

use super::address::DEVICES_MAX;
use super::context::Context;
use super::device::{Device, PerDevice};
use super::stream::Stream;
use crate::edge::{CuResult, Object, has_handle, new_number, publish};

pub(crate) struct MemoryPool {
    number: u64,
    pub(crate) device: Arc<Device>,
    is_default: bool,
    /// Value of the attribute `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
    threshold: AtomicU64,
}

has_handle!(MemoryPool: CUmemPoolHandle_st, CUDA_ERROR_INVALID_VALUE);

impl MemoryPool {
    pub(crate) fn create(device: &Arc<Device>) -> Arc<Self> {
        Self::new(device, false)
    }

    fn new(device: &Arc<Device>, is_default: bool) -> Arc<Self> {
        let pool = Arc::new(Self {
            number: new_number(),
            device: device.clone(),
            is_default,
            threshold: AtomicU64::new(0),
        });
        publish(&pool);
        pool
    }

    /// Returns the device's default pool.
    pub(crate) fn default_of(device: &'static Arc<Device>) -> Arc<Self> {
        static DEFAULTS: PerDevice<OnceLock<Arc<MemoryPool>>> =
            PerDevice::new([const { OnceLock::new() }; DEVICES_MAX]);
        DEFAULTS.of(device).get_or_init(|| Self::new(device, true)).clone()
    }

    pub(crate) fn trim(&self, kept: u64) {
        self.device.space.trim(kept);
    }

    /// Returns whether it is a device's default pool, which is never destroyed.
    pub(crate) fn is_default(&self) -> bool {
        self.is_default
    }

    pub(crate) fn attribute(&self, attribute: u32) -> CuResult<u64> {
        let used = self.device.space.total() - self.device.space.free();
        Ok(match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => 1,
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => self.threshold.load(Ordering::Relaxed),
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
            | CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
            | CU_MEMPOOL_ATTR_USED_MEM_CURRENT
            | CU_MEMPOOL_ATTR_USED_MEM_HIGH => used,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Implements `cuMemPoolSetAttribute`. Only the threshold is stored, so that the program can
    /// read it. The others have no effect, because we decide how memory is used again.
    pub(crate) fn set_attribute(&self, attribute: u32, value: u64) -> CuResult {
        match attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                self.threshold.store(value, Ordering::Relaxed);
                Ok(())
            }
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Implements `cuMemAllocAsync`. The memory can be used at once.
pub(crate) fn allocate(
    context: &Context,
    stream: &Stream,
    device: &Device,
    size: u64,
) -> CuResult<u64> {
    context.act_in(stream)?;
    // "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE", and the same holds here.
    device.allocate(size, context.number())
}

/// `cuMemFreeAsync`: "... the memory is freed in stream order".
pub(crate) fn free(context: &Context, device: &Device, stream: &Stream, address: u64) -> CuResult {
    context.act_in(stream)?;
    device.release(address, context.predecessors(stream)?)
}
