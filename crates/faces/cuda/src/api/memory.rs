//! Device memory and registered host memory.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::{host, managed, memory, platform};
use crate::edge::{CuResult, cu_entry, require, store};

/// `cuMemAllocPitch` rounds rows up to this number of bytes. It is the alignment of allocations, so
/// all rows are aligned like the first.
const PITCH_BYTES: usize = 256;

/// # Safety
/// `result` is null or writable.
unsafe fn allocate_host(result: *mut *mut c_void, size: usize, flags: c_uint) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::current()?;
    context.check()?;
    capture::check_safe()?;
    let address = host::allocate(&context, size, flags)?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, std::ptr::with_exposed_provenance_mut(address)) };
    Ok(())
}

/// Waits for all commands of all contexts that use this memory of the program.
fn await_users(address: usize, size: usize) -> CuResult {
    let current = Context::current()?;
    capture::synchronize(&current)?;
    host::drain_users(address, size);
    Ok(())
}

cu_entry! {
    fn cuMemAlloc_v2(result: *mut CUdeviceptr, size: usize) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.check()?;
        capture::check_safe()?;
        let address = memory::allocate(&context, size as u64)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, address) };
        Ok(())
    }
    fn cuMemAllocPitch_v2(result: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        require(!result.is_null() && !pitch.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // "... must be one of 4, 8 or 16"
        require([4, 8, 16].contains(&element), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.check()?;
        capture::check_safe()?;
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let size = row.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = memory::allocate(&context, size as u64)?;
        // SAFETY: the program promises that `pitch` is null or writable.
        unsafe { store(pitch, row) };
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, address) };
        Ok(())
    }
    fn cuMemFree_v2(address: CUdeviceptr) {
        let context = Context::current()?;
        context.check()?;
        if address == 0 {
            return Ok(());
        }
        capture::check_safe()?;
        let managed = usize::try_from(address).ok().and_then(host::find);
        if let Some(range) = managed.filter(|range| range.is_managed) {
            await_users(range.start, range.size)?;
        }
        memory::free(&context, address)
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let context = Context::current()?;
        require(!free.is_null() && !total.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let space = &context.device.space;
        // SAFETY: the program promises that `free` is null or writable.
        unsafe { store(free, usize::try_from(space.free()).unwrap_or(usize::MAX)) };
        // SAFETY: the program promises that `total` is null or writable.
        unsafe { store(total, usize::try_from(space.total()).unwrap_or(usize::MAX)) };
        Ok(())
    }
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) {
        Context::current()?;
        let device = platform::device_of(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let (start, live) = device.space.find(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: the program promises that `base` is null or writable.
        unsafe { store(base, start) };
        // SAFETY: the program promises that `size` is null or writable.
        unsafe { store(size, usize::try_from(live.size).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// Works if `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY` is 1 for the device. Otherwise
    /// "CUDA_ERROR_NOT_SUPPORTED".
    fn cuMemAllocManaged(result: *mut CUdeviceptr, size: usize, flags: c_uint) {
        let context = Context::current()?;
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        context.check()?;
        capture::check_safe()?;
        let address = managed::allocate(&context, size, flags)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, address) };
        Ok(())
    }
    fn cuMemAllocHost_v2(result: *mut *mut c_void, size: usize) {
        // SAFETY: the program promises what `allocate_host` demands.
        unsafe { allocate_host(result, size, 0) }
    }
    fn cuMemHostAlloc(result: *mut *mut c_void, size: usize, flags: c_uint) {
        // SAFETY: the program promises what `allocate_host` demands.
        unsafe { allocate_host(result, size, flags) }
    }
    fn cuMemFreeHost(address: *mut c_void) {
        Context::current()?;
        if address.is_null() {
            return Ok(());
        }
        let range = host::find(address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        await_users(address.addr(), range.size)?;
        host::free(address.addr())
    }
    fn cuMemHostRegister, cuMemHostRegister_v2(address: *mut c_void, size: usize, flags: c_uint) {
        Context::current()?.check()?;
        host::register(address.addr(), size, flags)
    }
    fn cuMemHostUnregister(address: *mut c_void) {
        Context::current()?;
        let range = host::find(address.addr()).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        await_users(address.addr(), range.size)?;
        host::unregister(address.addr())
    }
    /// Works for memory of `cuMemHostAlloc`, if `CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING` is 1 for
    /// the device, or if the memory has `CU_MEMHOSTALLOC_DEVICEMAP` and
    /// `CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY` is 1. Otherwise "CUDA_ERROR_NOT_SUPPORTED".
    fn cuMemHostGetDevicePointer_v2(result: *mut CUdeviceptr, address: *mut c_void, flags: c_uint) {
        let context = Context::current()?;
        // "Flags provides for future releases. For now, it must be set to 0."
        require(!result.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let seen = host::device_address(&context, address.addr())?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, seen) };
        Ok(())
    }
    fn cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void) {
        Context::current()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let range = host::find(address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `flags` is null or writable.
        unsafe { store(flags, range.flags) };
        Ok(())
    }
}
