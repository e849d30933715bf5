//! Managed memory: advice, prefetching, and what is known of a range.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::managed::{self, Location};
use crate::core::stream::Stream;
use crate::core::{host, platform};
use crate::edge::{CuResult, array, cu_entry, cu_stream_entry, require, store};

/// Checks that some device has managed memory.
fn require_managed(what: &str) -> CuResult {
    if platform::unified().is_some() {
        return Ok(());
    }
    let devices = platform::devices()?;
    let current = Context::peek();
    let device = current.as_ref().map(|context| &context.device).or(devices.first());
    device.map_or(Err(CUDA_ERROR_NOT_SUPPORTED), |device| managed::require_on(device, what))
}

/// Takes the order of the stream, in which there is nothing to do: the memory is where both the
/// device and the host use it.
fn prefetch(
    stream: CUstream,
    default: crate::edge::DefaultStream,
    address: CUdeviceptr,
    size: usize,
    to: impl FnOnce() -> CuResult<Location>,
) -> CuResult {
    require_managed("cuMemPrefetchAsync (cudaMemPrefetchAsync)")?;
    let (context, _) = Stream::resolve(stream, default)?;
    context.check()?;
    require(size > 0, CUDA_ERROR_INVALID_VALUE)?;
    let to = to()?;
    host::with_advice(address, size, |advice, at| advice.prefetched(to, at..at + size))
}

fn advise(
    address: CUdeviceptr,
    size: usize,
    advice: c_uint,
    location: impl FnOnce() -> CuResult<Location>,
) -> CuResult {
    require_managed("cuMemAdvise (cudaMemAdvise)")?;
    Context::current()?.check()?;
    require(size > 0, CUDA_ERROR_INVALID_VALUE)?;
    let location = location();
    host::with_advice(address, size, |known, at| known.take(advice, location, at..at + size))?
}

/// Stores an attribute of a range in `room` bytes.
///
/// # Safety
/// `data` is null or has `room` bytes.
unsafe fn answer(
    data: *mut c_void,
    room: usize,
    attribute: c_uint,
    address: CUdeviceptr,
    size: usize,
) -> CuResult {
    const NUMBER: usize = size_of::<c_int>();
    let fits = !data.is_null() && size > 0 && room.is_multiple_of(NUMBER);
    require(fits, CUDA_ERROR_INVALID_VALUE)?;
    let numbers = host::with_advice(address, size, |advice, at| {
        advice.answer(attribute, &(at..at + size), room / NUMBER)
    })??;
    for (index, number) in numbers.into_iter().enumerate() {
        // SAFETY: there are at most `room / NUMBER` numbers, and the caller promises the room.
        unsafe { store(data.cast::<c_int>().wrapping_add(index), number) };
    }
    Ok(())
}

cu_entry! {
    fn cuMemAdvise(address: CUdeviceptr, size: usize, advice: c_uint, device: CUdevice) {
        advise(address, size, advice, || Location::of_device(device))
    }
    fn cuMemAdvise_v2(address: CUdeviceptr, size: usize, advice: c_uint, location: CUmemLocation) {
        advise(address, size, advice, || Location::of(location))
    }
    fn cuMemRangeGetAttribute(
        data: *mut c_void,
        room: usize,
        attribute: c_uint,
        address: CUdeviceptr,
        size: usize,
    ) {
        require_managed("cuMemRangeGetAttribute (cudaMemRangeGetAttribute)")?;
        // SAFETY: the program promises that `data` is null or has `room` bytes.
        unsafe { answer(data, room, attribute, address, size) }
    }
    fn cuMemRangeGetAttributes(
        data: *mut *mut c_void,
        rooms: *mut usize,
        attributes: *mut c_uint,
        count: usize,
        address: CUdeviceptr,
        size: usize,
    ) {
        require_managed("cuMemRangeGetAttributes (cudaMemRangeGetAttributes)")?;
        require(count > 0, CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that each of the three is null or has `count` elements.
        let (data, rooms, attributes) =
            unsafe { (array(data, count)?, array(rooms, count)?, array(attributes, count)?) };
        for ((data, room), attribute) in data.iter().zip(rooms).zip(attributes) {
            // SAFETY: the program promises that each of `data` is null or has its room.
            unsafe { answer(*data, *room, *attribute, address, size) }?;
        }
        Ok(())
    }
}

cu_stream_entry! {
    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz |default| (
        address: CUdeviceptr,
        size: usize,
        to: CUdevice,
        stream: CUstream,
    ) {
        prefetch(stream, default, address, size, || Location::of_device(to))
    }
    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz |default| (
        address: CUdeviceptr,
        size: usize,
        to: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    ) {
        // "Flags reserved for future use, must be zero."
        require(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        prefetch(stream, default, address, size, || Location::of(to))
    }
    /// Changes nothing: the host may access managed memory at any time
    /// (`CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`).
    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz |default| (
        stream: CUstream,
        address: CUdeviceptr,
        size: usize,
        flags: c_uint,
    ) {
        require_managed("cuStreamAttachMemAsync (cudaStreamAttachMemAsync)")?;
        // "It is an error to specify CU_MEM_ATTACH_SINGLE with the NULL stream"
        let is_known = match flags {
            CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST => true,
            CU_MEM_ATTACH_SINGLE => !stream.is_null(),
            _ => false,
        };
        require(is_known, CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        context.check()?;
        // "length must be zero or the entire size of the allocation"
        let address = usize::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let range = host::find(address).filter(|range| range.is_managed);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_whole = address == range.start && (size == 0 || size == range.size);
        require(is_whole, CUDA_ERROR_INVALID_VALUE)
    }
}
