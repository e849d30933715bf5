//! Memory in the order of streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::graph::capture;
use crate::core::graph::memory::{self, Memory};
use crate::core::graph::work::Work;
use crate::core::platform;
use crate::core::pool::{self, Pool};
use crate::core::stream::Stream;
use crate::edge::{CuResult, Object as _, cu_entry, cu_stream_entry, forget, load, require, store};

/// Whether an attribute's value is a number of 64 bits; the others have 32.
const fn is_wide(attribute: c_uint) -> bool {
    attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
}

/// # Safety
/// `result` is `NULL` or a place for a handle.
unsafe fn default_pool(result: *mut CUmemoryPool, dev: CUdevice) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let pool = Pool::default_of(platform::device(dev)?);
    // SAFETY: the caller's promise.
    unsafe { store(result, pool.raw()) };
    Ok(())
}

/// The address of memory in the order of a stream; in a capture that of a node.
fn allocate(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    device: &Arc<Device>,
    size: u64,
) -> CuResult<u64> {
    let mut made = 0;
    let is_taken = capture::takes(context, stream, || {
        let memory = Memory::new(context, device, size)?;
        made = memory.address();
        Ok(Work::Allocate(memory))
    })?;
    if is_taken { Ok(made) } else { pool::allocate(context, device, size) }
}

cu_entry! {
    /// `cuDeviceGetDefaultMemPool`.
    fn cuDeviceGetDefaultMemPool(result: *mut CUmemoryPool, dev: CUdevice) {
        // SAFETY: the program's place.
        unsafe { default_pool(result, dev) }
    }
    /// `cuDeviceGetMemPool`: all pools of a device hand out the same memory, so the default one is always the current one.
    fn cuDeviceGetMemPool(result: *mut CUmemoryPool, dev: CUdevice) {
        // SAFETY: the program's place.
        unsafe { default_pool(result, dev) }
    }
    /// `cuDeviceSetMemPool`.
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        let pool = Pool::borrow(pool)?;
        require(pool.device.number() == dev, CUDA_ERROR_INVALID_VALUE)
    }
    /// `cuMemPoolCreate`: on a device, for this process.
    fn cuMemPoolCreate(result: *mut CUmemoryPool, properties: *const [u32; 4]) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program's description: kind of allocation, handles, kind of place, place.
        let [kind, handles, place, dev] = unsafe { load(properties) }?;
        require(kind == 1 && place == 1, CUDA_ERROR_INVALID_VALUE)?;
        require(handles == 0, CUDA_ERROR_NOT_SUPPORTED)?;
        let device = platform::device(CUdevice::try_from(dev).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, Pool::create(device).raw()) };
        Ok(())
    }
    /// `cuMemPoolDestroy`.
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        platform::check_process()?;
        let pool = Pool::borrow(pool)?;
        require(!pool.is_default(), CUDA_ERROR_INVALID_VALUE)?;
        forget(&*pool).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    /// `cuMemPoolTrimTo`: where CUDA's own driver hands out the memory; elsewhere free memory costs nothing that could be given back.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, bytes: usize) {
        platform::check_process()?;
        Pool::borrow(pool)?.trim(bytes as u64);
        Ok(())
    }
    /// `cuMemPoolGetAttribute`.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        platform::check_process()?;
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = Pool::borrow(pool)?.attribute(attribute)?;
        if is_wide(attribute) {
            // SAFETY: a place for the number.
            unsafe { store(value.cast(), answer) };
        } else {
            // SAFETY: a place for the number.
            unsafe { store(value.cast(), c_int::try_from(answer).unwrap_or(c_int::MAX)) };
        }
        Ok(())
    }
    /// `cuMemPoolSetAttribute`.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        platform::check_process()?;
        let pool = Pool::borrow(pool)?;
        let value = if is_wide(attribute) {
            // SAFETY: a number of the program.
            unsafe { load(value.cast_const().cast::<u64>()) }?
        } else {
            // SAFETY: a number of the program.
            u64::from(unsafe { load(value.cast_const().cast::<c_uint>()) }?)
        };
        pool.set_attribute(attribute, value)
    }
    /// `cuMemPoolSetAccess`: a pool's own device always has access, others never.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: *const [u32; 3], count: usize) {
        platform::check_process()?;
        let pool = Pool::borrow(pool)?;
        // SAFETY: kind of place, place, access of each.
        for [kind, dev, access] in unsafe { crate::edge::array(list, count) }? {
            let is_own = *kind == 1 && CUdevice::try_from(*dev) == Ok(pool.device.number());
            require(is_own || *access == 0, CUDA_ERROR_NOT_SUPPORTED)?;
        }
        Ok(())
    }
    /// `cuMemPoolGetAccess`.
    fn cuMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, place: *mut [u32; 2]) {
        platform::check_process()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let pool = Pool::borrow(pool)?;
        // SAFETY: kind of place, and place.
        let [kind, dev] = unsafe { load(place.cast_const()) }?;
        let is_own = kind == 1 && CUdevice::try_from(dev) == Ok(pool.device.number());
        // SAFETY: a place for the number: read and write, or none.
        unsafe { store(flags, if is_own { 3 } else { 0 }) };
        Ok(())
    }
}

cu_stream_entry! {
    /// `cuMemAllocAsync`.
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz |default| (result: *mut CUdeviceptr, size: usize, stream: CUstream) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let address = allocate(&context, &stream, &context.device, size as u64)?;
        // SAFETY: a place for the address.
        unsafe { store(result, address) };
        Ok(())
    }
    /// `cuMemAllocFromPoolAsync`.
    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz |default| (
        result: *mut CUdeviceptr,
        size: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let pool = Pool::borrow(pool)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let address = allocate(&context, &stream, &pool.device, size as u64)?;
        // SAFETY: a place for the address.
        unsafe { store(result, address) };
        Ok(())
    }
    /// `cuMemFreeAsync`.
    fn cuMemFreeAsync / cuMemFreeAsync_ptsz |default| (address: CUdeviceptr, stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        let work = || {
            // Graphs free what graphs have allocated.
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
