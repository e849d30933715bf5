//! Pools of memory, as far as the driver has them. Descriptions of pools, places and access are the driver's own.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{CUdeviceptr, CUmemoryPool};

use crate::core::context::{current, device};
use crate::driver::driver;
use crate::edge::{RtError, RtResult, entry, on_stream};
use penstock_cuda_sys::runtime_codes as code;

/// `cudaMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// [`LOCATION_DEVICE`], or another.
    kind: c_int,
    /// The device's number.
    id: c_int,
}

/// `cudaMemLocationTypeDevice`
const LOCATION_DEVICE: c_int = 1;

/// `cudaMemAllocationTypePinned`: the only one that pools of devices are of.
const ALLOCATION_PINNED: c_int = 1;

/// The device of a location: pools elsewhere are not served.
///
/// # Safety
/// `location` is null or leads to one.
unsafe fn device_of(location: *const Location, kind: c_int) -> RtResult<c_int> {
    if location.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    let Location { kind: place, id } = unsafe { location.read_unaligned() };
    if place != LOCATION_DEVICE || kind != ALLOCATION_PINNED {
        return Err(RtError(code::NOT_SUPPORTED));
    }
    Ok(id)
}

entry! {
    /// The pool that a device has from the start.
    fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        driver()?.cuDeviceGetDefaultMemPool(pool, device(ordinal)?.handle)
    }
    /// The pool that a device uses.
    fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        driver()?.cuDeviceGetMemPool(pool, device(ordinal)?.handle)
    }
    /// Has a device use a pool.
    fn cudaDeviceSetMemPool(ordinal: c_int, pool: CUmemoryPool) {
        driver()?.cuDeviceSetMemPool(device(ordinal)?.handle, pool)
    }
    /// The pool that a place has from the start.
    fn cudaMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: c_int) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceGetDefaultMemPool(pool, device(ordinal)?.handle)
    }
    /// The pool that a place uses.
    fn cudaMemGetMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: c_int) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceGetMemPool(pool, device(ordinal)?.handle)
    }
    /// Has a place use a pool.
    fn cudaMemSetMemPool(location: *const Location, kind: c_int, pool: CUmemoryPool) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceSetMemPool(device(ordinal)?.handle, pool)
    }
    /// A pool.
    fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const c_void) {
        current()?.driver.cuMemPoolCreate(pool, properties)
    }
    /// Ends a pool when its memory was given back.
    fn cudaMemPoolDestroy(pool: CUmemoryPool) {
        current()?.driver.cuMemPoolDestroy(pool)
    }
    /// Has a pool give back to the device what it does not use.
    fn cudaMemPoolTrimTo(pool: CUmemoryPool, bytes_kept: usize) {
        current()?.driver.cuMemPoolTrimTo(pool, bytes_kept)
    }
    /// An attribute of a pool.
    fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuMemPoolGetAttribute(pool, attribute, value)
    }
    /// Sets an attribute of a pool.
    fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuMemPoolSetAttribute(pool, attribute, value)
    }
    /// Which devices can use a pool's memory.
    fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, location: *mut c_void) {
        current()?.driver.cuMemPoolGetAccess(flags, pool, location)
    }
    /// Lets devices use a pool's memory.
    fn cudaMemPoolSetAccess(pool: CUmemoryPool, list: *const c_void, count: usize) {
        current()?.driver.cuMemPoolSetAccess(pool, list, count)
    }
}

on_stream! {
    /// Memory of a pool, from when a stream gets there.
    fn cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz(memory: *mut *mut c_void, bytes: usize, pool: CUmemoryPool; stream) {
        let current = current()?;
        if memory.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut address: CUdeviceptr = 0;
        current.driver.cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, stream)?;
        let address = usize::try_from(address).map_err(|_| RtError::INVALID_VALUE)?;
        memory.write(std::ptr::without_provenance_mut(address));
        Ok(())
    }
}
