//! Host memory that the program has registered or allocated through us. Copies to it need no wait.
//! Kernels can use it only if it is a block of their device's memory ([`super::mapped`]).

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::context::Context;
use super::mapped::MappedBlock;
use crate::edge::{CuResult, Pages};

struct Range {
    size: usize,
    flags: u32,
    /// `None` if the memory belongs to the program.
    allocated: Option<Allocated>,
}

/// Memory that belongs to us.
enum Allocated {
    /// Is unmapped when it is dropped.
    Pages(#[expect(dead_code, reason = "only held")] Pages),
    Mapped(MappedBlock),
}

impl Range {
    fn mapped(&self) -> Option<&MappedBlock> {
        match &self.allocated {
            Some(Allocated::Mapped(block)) => Some(block),
            _ => None,
        }
    }
}

static RANGES: Lock<BTreeMap<usize, Range>> = Lock::new(BTreeMap::new());

fn ranges() -> MutexGuard<'static, BTreeMap<usize, Range>> {
    RANGES.lock()
}

/// Implements `cuMemHostAlloc`: allocates and registers memory. This is plain pages, except if the
/// program asks for memory that kernels see and the device has such memory.
pub(crate) fn allocate(context: &Context, size: usize, flags: u32) -> CuResult<usize> {
    const KNOWN: u32 =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if size == 0 || flags & !KNOWN != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & CU_MEMHOSTALLOC_DEVICEMAP != 0 && context.device.can_map_host_memory() {
        let block = MappedBlock::new(context, size)?;
        return Ok(enter(block.address(), size, flags, Allocated::Mapped(block)));
    }
    allocate_pages(size, flags)
}

fn allocate_pages(size: usize, flags: u32) -> CuResult<usize> {
    let pages = Pages::new(size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(enter(pages.address(), size, flags, Allocated::Pages(pages)))
}

fn enter(address: usize, size: usize, flags: u32, allocated: Allocated) -> usize {
    ranges().insert(address, Range { size, flags, allocated: Some(allocated) });
    address
}

/// Implements `cuMemFreeHost`. Mapped memory is used again when no command can use it any more.
pub(crate) fn free(address: usize) -> CuResult {
    let mut ranges = ranges();
    if ranges.get(&address).is_none_or(|range| range.allocated.is_none()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let removed = ranges.remove(&address);
    // What follows may wait for the device.
    drop(ranges);
    match removed.and_then(|range| range.allocated) {
        Some(Allocated::Mapped(block)) => block.free(),
        Some(Allocated::Pages(_)) | None => Ok(()),
    }
}

/// Forgets the mapped memory of a destroyed context. Its blocks are freed with the context.
pub(crate) fn forget_of(owner: u64) {
    ranges().retain(|_, range| range.mapped().is_none_or(|block| !block.is_of(owner)));
}

/// Implements `cuMemHostGetDevicePointer`: returns the address at which kernels see the byte.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the memory is not registered, `CUDA_ERROR_NOT_SUPPORTED` if
/// kernels of the context's device cannot use it.
pub(crate) fn device_address(context: &Context, address: usize) -> CuResult<u64> {
    let ranges = ranges();
    let (start, range) = containing(&ranges, address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let block = range.mapped().filter(|block| block.is_on(&context.device));
    Ok(block.ok_or(CUDA_ERROR_NOT_SUPPORTED)?.device_address(address - start))
}

/// Returns the host address of mapped memory at a device address.
pub(crate) fn host_address(address: u64) -> Option<usize> {
    ranges().iter().find_map(|(start, range)| {
        let offset = address.checked_sub(range.mapped()?.device_address(0))?;
        let offset = usize::try_from(offset).ok()?;
        (offset < range.size).then_some(start + offset)
    })
}

pub(crate) fn register(address: usize, size: usize, flags: u32) -> CuResult {
    // Flags: portable, device map, I/O memory, read only.
    if address == 0 || size == 0 || flags & !0xf != 0 || address.checked_add(size).is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut ranges = ranges();
    let before = ranges.range(..address + size).next_back();
    if before.is_some_and(|(start, range)| start + range.size > address) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(address, Range { size, flags, allocated: None });
    Ok(())
}

pub(crate) fn unregister(address: usize) -> CuResult {
    let mut ranges = ranges();
    if ranges.get(&address).is_none_or(|range| range.allocated.is_some()) {
        return Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    ranges.remove(&address);
    Ok(())
}

/// A range of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredRange {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) flags: u32,
    /// Device address of `start`, if kernels of a device see the range.
    pub(crate) mapped: Option<u64>,
}

/// Returns the range that contains an address, and its start.
fn containing(ranges: &BTreeMap<usize, Range>, address: usize) -> Option<(usize, &Range)> {
    let (start, range) = ranges.range(..=address).next_back()?;
    (address - start < range.size).then_some((*start, range))
}

/// Returns the registered range that contains an address.
pub(crate) fn find(address: usize) -> Option<RegisteredRange> {
    let ranges = ranges();
    let (start, range) = containing(&ranges, address)?;
    let mapped = range.mapped().map(|block| block.device_address(0));
    Some(RegisteredRange { start, size: range.size, flags: range.flags, mapped })
}

/// Returns whether all of these bytes are registered.
pub(crate) fn is_registered(address: usize, size: usize) -> bool {
    find(address).is_some_and(|range| address - range.start + size <= range.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_known_once() {
        let size = 3 * 4096;
        let mut own = vec![0u8; size];
        let address = own.as_mut_ptr().addr();
        register(address, size, 0).unwrap();
        assert_eq!(register(address + 8, 8, 0), Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!(register(address - 8, 9, 0), Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        assert!(is_registered(address + 5, size - 5) && !is_registered(address + 5, size));
        assert_eq!(free(address), Err(CUDA_ERROR_INVALID_VALUE));
        unregister(address).unwrap();
        assert_eq!(unregister(address), Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
        let pinned = allocate_pages(100, 0).unwrap();
        let found = RegisteredRange { start: pinned, size: 100, flags: 0, mapped: None };
        assert_eq!(find(pinned + 99), Some(found));
        assert_eq!(find(pinned + 100), None);
        free(pinned).unwrap();
        assert_eq!(free(pinned), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
