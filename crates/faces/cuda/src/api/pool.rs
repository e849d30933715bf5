//! Memory allocated and freed in the order of streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::graph::capture;
use crate::core::graph::memory::{self, GraphMemory};
use crate::core::graph::work::Work;
use crate::core::platform;
use crate::core::pool::{self, MemoryPool};
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, Object as _, check_process, cu_entry, cu_stream_entry, forget, load, require, store,
};

/// Returns whether an attribute's value has 64 bits; otherwise it has 32.
const fn is_wide(attribute: c_uint) -> bool {
    attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
}

/// # Safety
/// `result` is null or writable.
unsafe fn default_pool(result: *mut CUmemoryPool, dev: CUdevice) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let pool = MemoryPool::default_of(platform::device(dev)?);
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, pool.raw()) };
    Ok(())
}

/// Allocates memory in the order of a stream. In a captured stream, adds a node that allocates it.
/// Returns the address.
fn allocate(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    device: &Arc<Device>,
    size: u64,
) -> CuResult<u64> {
    let mut made = 0;
    let is_taken = capture::takes(context, stream, || {
        let memory = GraphMemory::new(context, device, size)?;
        made = memory.address();
        Ok(Work::Allocate(memory))
    })?;
    if is_taken { Ok(made) } else { pool::allocate(context, stream, device, size) }
}

cu_entry! {
    /// Both return the default pool: all pools of a device share one memory, so the current pool does
    /// not matter.
    fn cuDeviceGetDefaultMemPool, cuDeviceGetMemPool(result: *mut CUmemoryPool, dev: CUdevice) {
        // SAFETY: the program promises what `default_pool` demands.
        unsafe { default_pool(result, dev) }
    }
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        let pool = MemoryPool::borrow(pool)?;
        require(pool.device.number() == dev, CUDA_ERROR_INVALID_VALUE)
    }
    /// Makes a pool for memory of a device, for this process only.
    fn cuMemPoolCreate(result: *mut CUmemoryPool, properties: *const CUmemPoolProps) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `properties` is null or readable.
        let wanted = unsafe { load(properties) }?;
        require(wanted.allocType == 1 && wanted.locationType == 1, CUDA_ERROR_INVALID_VALUE)?;
        require(wanted.handleTypes == 0, CUDA_ERROR_NOT_SUPPORTED)?;
        let device = platform::device(wanted.locationId)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, MemoryPool::create(device).raw()) };
        Ok(())
    }
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        check_process()?;
        let pool = MemoryPool::borrow(pool)?;
        require(!pool.is_default(), CUDA_ERROR_INVALID_VALUE)?;
        forget(&*pool).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    /// Has an effect only if CUDA's own driver allocates the memory. Elsewhere free memory costs
    /// nothing.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, bytes: usize) {
        check_process()?;
        MemoryPool::borrow(pool)?.trim(bytes as u64);
        Ok(())
    }
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        check_process()?;
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = MemoryPool::borrow(pool)?.attribute(attribute)?;
        if is_wide(attribute) {
            // SAFETY: the program promises that `value` is null or writable.
            unsafe { store(value.cast(), answer) };
        } else {
            // SAFETY: the program promises that `value` is null or writable.
            unsafe { store(value.cast(), c_int::try_from(answer).unwrap_or(c_int::MAX)) };
        }
        Ok(())
    }
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        check_process()?;
        let pool = MemoryPool::borrow(pool)?;
        let value = if is_wide(attribute) {
            // SAFETY: the program promises that `value` is null or readable.
            unsafe { load(value.cast_const().cast::<u64>()) }?
        } else {
            // SAFETY: the program promises that `value` is null or readable.
            u64::from(unsafe { load(value.cast_const().cast::<c_uint>()) }?)
        };
        pool.set_attribute(attribute, value)
    }
    /// Accepts only what holds anyway: a pool's own device always has access, others never.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: *const CUmemAccessDesc, count: usize) {
        check_process()?;
        let pool = MemoryPool::borrow(pool)?;
        // SAFETY: the program promises that `list` is null or has `count` elements: kind of place,
        // device, access.
        for [kind, dev, access] in unsafe { crate::edge::array(list, count) }? {
            let is_own = *kind == 1 && CUdevice::try_from(*dev) == Ok(pool.device.number());
            require(is_own || *access == 0, CUDA_ERROR_NOT_SUPPORTED)?;
        }
        Ok(())
    }
    fn cuMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, place: *mut CUmemLocation) {
        check_process()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let pool = MemoryPool::borrow(pool)?;
        // SAFETY: the program promises that `place` is null or readable.
        let CUmemLocation { kind, id } = unsafe { load(place.cast_const()) }?;
        let is_own = kind == CU_MEM_LOCATION_TYPE_DEVICE && id == pool.device.number();
        // SAFETY: the program promises that `flags` is null or writable. 3: read and write; 0: no
        // access.
        unsafe { store(flags, if is_own { 3 } else { 0 }) };
        Ok(())
    }
}

cu_stream_entry! {
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz |default| (result: *mut CUdeviceptr, size: usize, stream: CUstream) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let address = allocate(&context, &stream, &context.device, size as u64)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, address) };
        Ok(())
    }
    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz |default| (
        result: *mut CUdeviceptr,
        size: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let pool = MemoryPool::borrow(pool)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let address = allocate(&context, &stream, &pool.device, size as u64)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, address) };
        Ok(())
    }
    fn cuMemFreeAsync / cuMemFreeAsync_ptsz |default| (address: CUdeviceptr, stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        let work = || {
            // Graphs can free only memory that graphs allocated.
            require(memory::is_address(address), CUDA_ERROR_INVALID_VALUE)?;
            Ok(Work::Free(address))
        };
        if capture::takes(&context, &stream, work)? {
            return Ok(());
        }
        if let Some(freed) = memory::free(address) {
            return freed;
        }
        let device = platform::device_of(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        pool::free(&context, device, &stream, address)
    }
}
