//! Device memory and registered host memory.

use std::ffi::{c_uint, c_void};

use penstock_client::HostShape;
use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::{host, platform};
use crate::edge::{CuResult, cu_entry, require, store};

/// `cuMemAllocPitch` rounds rows to this: the alignment of what is handed out, so that every row is aligned as the first.
const PITCH_BYTES: usize = 256;

/// # Safety
/// `result` is a place for an address.
unsafe fn allocate_host(result: *mut *mut c_void, size: usize, flags: c_uint) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    Context::current()?.check()?;
    capture::check_safe()?;
    let address = host::allocate(size, flags)?;
    // SAFETY: the caller's promise.
    unsafe { store(result, std::ptr::with_exposed_provenance_mut(address)) };
    Ok(())
}

/// Waits until nothing under way writes into memory of the program, in whichever context, on whichever device.
fn settle(address: usize, size: usize) -> CuResult {
    let current = Context::current()?;
    current.synchronize()?;
    for context in platform::devices()?.iter().flat_map(|device| device.contexts()) {
        let shape = HostShape::linear(address as u64, size as u64);
        let is_used =
            penstock_client::may_be_written(&shape) || penstock_client::may_be_read(&shape);
        if !std::ptr::eq(&*context, &*current) && is_used {
            // Also where it has failed: then too what is under way may write.
            context.drain();
        }
    }
    Ok(())
}

cu_entry! {
    /// `cuMemAlloc`.
    fn cuMemAlloc_v2(result: *mut CUdeviceptr, size: usize) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.check()?;
        capture::check_safe()?;
        let address = context.allocate(size as u64)?;
        // SAFETY: a place for the address.
        unsafe { store(result, address) };
        Ok(())
    }
    /// `cuMemAllocPitch`.
    fn cuMemAllocPitch_v2(result: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        require(!result.is_null() && !pitch.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // "... must be one of 4, 8 or 16"
        require([4, 8, 16].contains(&element), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.check()?;
        capture::check_safe()?;
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let size = row.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = context.allocate(size as u64)?;
        // SAFETY: a place for the number.
        unsafe { store(pitch, row) };
        // SAFETY: a place for the address.
        unsafe { store(result, address) };
        Ok(())
    }
    /// `cuMemFree`.
    fn cuMemFree_v2(address: CUdeviceptr) {
        let context = Context::current()?;
        context.check()?;
        if address == 0 {
            return Ok(());
        }
        capture::check_safe()?;
        context.free(address)
    }
    /// `cuMemGetInfo`.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let context = Context::current()?;
        require(!free.is_null() && !total.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let space = &context.device.space;
        // SAFETY: a place for the number.
        unsafe { store(free, usize::try_from(space.free()).unwrap_or(usize::MAX)) };
        // SAFETY: a place for the number.
        unsafe { store(total, usize::try_from(space.total()).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// `cuMemGetAddressRange`.
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) {
        Context::current()?;
        let device = platform::device_of(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let (start, live) = device.space.find(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: a place for the address.
        unsafe { store(base, start) };
        // SAFETY: a place for the number.
        unsafe { store(size, usize::try_from(live.size).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// `cuMemAllocManaged`: needs memory that both sides see without a call; `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY` says no.
    fn cuMemAllocManaged(_result: *mut CUdeviceptr, _size: usize, _flags: c_uint) {
        Context::current()?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    /// `cuMemAllocHost`.
    fn cuMemAllocHost_v2(result: *mut *mut c_void, size: usize) {
        // SAFETY: the program's place.
        unsafe { allocate_host(result, size, 0) }
    }
    /// `cuMemHostAlloc`.
    fn cuMemHostAlloc(result: *mut *mut c_void, size: usize, flags: c_uint) {
        // SAFETY: the program's place.
        unsafe { allocate_host(result, size, flags) }
    }
    /// `cuMemFreeHost`.
    fn cuMemFreeHost(address: *mut c_void) {
        Context::current()?;
        if address.is_null() {
            return Ok(());
        }
        let (_, size, _) = host::find(address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        settle(address.addr(), size)?;
        host::free(address.addr())
    }
    /// `cuMemHostRegister`.
    fn cuMemHostRegister(address: *mut c_void, size: usize, flags: c_uint) {
        Context::current()?.check()?;
        host::register(address.addr(), size, flags)
    }
    /// `cuMemHostRegister`.
    fn cuMemHostRegister_v2(address: *mut c_void, size: usize, flags: c_uint) {
        Context::current()?.check()?;
        host::register(address.addr(), size, flags)
    }
    /// `cuMemHostUnregister`.
    fn cuMemHostUnregister(address: *mut c_void) {
        Context::current()?;
        let (_, size, _) = host::find(address.addr()).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        settle(address.addr(), size)?;
        host::unregister(address.addr())
    }
    /// `cuMemHostGetDevicePointer`: host memory cannot be mapped (`CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY` says no).
    fn cuMemHostGetDevicePointer_v2(_result: *mut CUdeviceptr, address: *mut c_void, _flags: c_uint) {
        Context::current()?;
        host::find(address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    /// `cuMemHostGetFlags`.
    fn cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void) {
        Context::current()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, _, set) = host::find(address.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number.
        unsafe { store(flags, set) };
        Ok(())
    }
}
