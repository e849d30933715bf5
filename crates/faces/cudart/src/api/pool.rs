//! Memory pools, as far as the driver has them. Pools, locations and access are described in the
//! driver's own structures.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use super::pass_on::pass_on;
use crate::core::context::{current, device};
use crate::driver::driver;
use crate::edge::{RtError, RtResult, entry, on_stream};
use penstock_cuda_sys::runtime_codes as code;

/// Layout of C's `cudaMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// [`LOCATION_DEVICE`] or another kind of location.
    kind: c_int,
    id: c_int,
}

const LOCATION_DEVICE: c_int = 1;

/// `cudaMemAllocationTypePinned`, the only type that pools of devices have.
const ALLOCATION_PINNED: c_int = 1;

/// Returns the device of a location. Pools elsewhere are not served.
///
/// # Safety
/// `location` is null or points to a location.
unsafe fn device_of(location: *const Location, kind: c_int) -> RtResult<c_int> {
    if location.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let Location { kind: place, id } = unsafe { location.read_unaligned() };
    if place != LOCATION_DEVICE || kind != ALLOCATION_PINNED {
        return Err(RtError(code::NOT_SUPPORTED));
    }
    Ok(id)
}

entry! {
    /// Returns the pool that a device has from the start.
    fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        driver()?.cuDeviceGetDefaultMemPool(pool, device(ordinal)?.handle)
    }
    /// Returns the pool that a device currently uses.
    fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        driver()?.cuDeviceGetMemPool(pool, device(ordinal)?.handle)
    }
    /// Sets the pool that a device uses.
    fn cudaDeviceSetMemPool(ordinal: c_int, pool: CUmemoryPool) {
        driver()?.cuDeviceSetMemPool(device(ordinal)?.handle, pool)
    }
    /// Returns the pool that a location has from the start.
    fn cudaMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: c_int) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceGetDefaultMemPool(pool, device(ordinal)?.handle)
    }
    /// Returns the pool that a location currently uses.
    fn cudaMemGetMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: c_int) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceGetMemPool(pool, device(ordinal)?.handle)
    }
    /// Sets the pool that a location uses.
    fn cudaMemSetMemPool(location: *const Location, kind: c_int, pool: CUmemoryPool) {
        let ordinal = device_of(location, kind)?;
        driver()?.cuDeviceSetMemPool(device(ordinal)?.handle, pool)
    }
}

pass_on! {
    fn cudaMemPoolCreate = cuMemPoolCreate;
    /// Destroys a pool after the program has freed its memory.
    fn cudaMemPoolDestroy = cuMemPoolDestroy;
    /// Returns unused memory of a pool to the device, but keeps the given number of bytes.
    fn cudaMemPoolTrimTo = cuMemPoolTrimTo;
    fn cudaMemPoolGetAttribute = cuMemPoolGetAttribute;
    fn cudaMemPoolSetAttribute = cuMemPoolSetAttribute;
    /// Returns how a location can access a pool's memory.
    fn cudaMemPoolGetAccess = cuMemPoolGetAccess;
    /// Sets how devices can access a pool's memory.
    fn cudaMemPoolSetAccess = cuMemPoolSetAccess;
}

on_stream! {
    /// Allocates memory of a pool in the order of a stream.
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
