//! Managed memory: advice, prefetching, and what is known of a range.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_DEVICE_CPU, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CUmemLocation, CUstream,
};

use crate::core::context::current;
use crate::core::copy::device_pointer;
use crate::core::per_thread;
use crate::edge::{RtResult, entry, major, on_stream};

/// Reads a location. It is one argument of eight bytes: its kind, then its number.
fn location(argument: usize) -> CUmemLocation {
    let half = |shift: u32| c_uint::try_from((argument >> shift) & 0xffff_ffff).unwrap_or(0);
    CUmemLocation { kind: half(0), id: half(32).cast_signed() }
}

/// Reads what is a location in version 13, and the number of a device in version 12. The upper half
/// of that argument's register is undefined.
fn place(argument: usize) -> CUmemLocation {
    let given = location(argument);
    match given.kind.cast_signed() {
        _ if major() > 12 => given,
        CU_DEVICE_CPU => CUmemLocation { kind: CU_MEM_LOCATION_TYPE_HOST, id: 0 },
        id => CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id },
    }
}

/// # Safety
/// `stream` is a stream.
unsafe fn prefetch(
    memory: *const c_void,
    bytes: usize,
    to: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> RtResult {
    let (driver, at) = (current()?.driver, device_pointer(memory));
    // SAFETY: the driver checks the address.
    unsafe { driver.cuMemPrefetchAsync_v2(at, bytes, to, flags, stream) }
}

/// Prefetches. In version 12, the function has a stream in place of the flags, and no fifth
/// parameter.
///
/// # Safety
/// The last argument that the version has is a stream.
unsafe fn prefetch_as_given(
    memory: *const c_void,
    bytes: usize,
    to: usize,
    flags_or_stream: usize,
    stream: CUstream,
    streams: fn(CUstream) -> CUstream,
) -> RtResult {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        if major() > 12 {
            let flags = c_uint::try_from(flags_or_stream & 0xffff_ffff).unwrap_or(0);
            return prefetch(memory, bytes, place(to), flags, streams(stream));
        }
        let stream = std::ptr::with_exposed_provenance_mut(flags_or_stream);
        prefetch(memory, bytes, place(to), 0, streams(stream))
    }
}

entry! {
    /// Prefetches managed memory.
    fn cudaMemPrefetchAsync(
        memory: *const c_void,
        bytes: usize,
        to: usize,
        flags_or_stream: usize,
        stream: CUstream,
    ) {
        prefetch_as_given(memory, bytes, to, flags_or_stream, stream, |stream| stream)
    }
    /// Prefetches managed memory.
    ///
    /// For programs in which each thread has its own default stream.
    fn cudaMemPrefetchAsync_ptsz(
        memory: *const c_void,
        bytes: usize,
        to: usize,
        flags_or_stream: usize,
        stream: CUstream,
    ) {
        prefetch_as_given(memory, bytes, to, flags_or_stream, stream, per_thread)
    }
    /// Advises where to keep managed memory. In version 12, the last parameter is a device.
    fn cudaMemAdvise(memory: *const c_void, bytes: usize, advice: c_uint, device: usize) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuMemAdvise_v2(at, bytes, advice, place(device))
    }
    /// Advises where to keep managed memory.
    fn cudaMemAdvise_v2(memory: *const c_void, bytes: usize, advice: c_uint, to: usize) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuMemAdvise_v2(at, bytes, advice, location(to))
    }
    /// Returns what was advised for a range.
    fn cudaMemRangeGetAttribute(
        data: *mut c_void,
        room: usize,
        attribute: c_uint,
        memory: *const c_void,
        bytes: usize,
    ) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuMemRangeGetAttribute(data, room, attribute, at, bytes)
    }
    /// Returns what was advised for a range.
    fn cudaMemRangeGetAttributes(
        data: *mut *mut c_void,
        rooms: *mut usize,
        attributes: *mut c_uint,
        count: usize,
        memory: *const c_void,
        bytes: usize,
    ) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuMemRangeGetAttributes(data, rooms, attributes, count, at, bytes)
    }
    /// Ties managed memory to a stream.
    fn cudaStreamAttachMemAsync(
        stream: CUstream,
        memory: *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuStreamAttachMemAsync(stream, at, bytes, flags)
    }
    /// Ties managed memory to a stream.
    ///
    /// For programs in which each thread has its own default stream.
    fn cudaStreamAttachMemAsync_ptsz(
        stream: CUstream,
        memory: *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) {
        let (driver, at) = (current()?.driver, device_pointer(memory));
        driver.cuStreamAttachMemAsync(per_thread(stream), at, bytes, flags)
    }
}

on_stream! {
    /// Prefetches managed memory to a location.
    fn cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_v2_ptsz(
        memory: *const c_void, bytes: usize, to: usize, flags: c_uint; stream
    ) {
        prefetch(memory, bytes, location(to), flags, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_from_one_argument() {
        let host = location(usize::try_from(CU_MEM_LOCATION_TYPE_HOST).unwrap());
        assert_eq!((host.kind, host.id), (CU_MEM_LOCATION_TYPE_HOST, 0));
        let device = location((7 << 32) | usize::try_from(CU_MEM_LOCATION_TYPE_DEVICE).unwrap());
        assert_eq!((device.kind, device.id), (CU_MEM_LOCATION_TYPE_DEVICE, 7));
    }
}
