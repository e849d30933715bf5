//! Host memory that the program has registered or allocated through us. Copies to it need no wait.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use crate::edge::{CuResult, Pages};

struct Range {
    size: usize,
    flags: u32,
    /// `None` if the memory belongs to the program.
    pages: Option<Pages>,
}

static RANGES: Lock<BTreeMap<usize, Range>> = Lock::new(BTreeMap::new());

fn ranges() -> MutexGuard<'static, BTreeMap<usize, Range>> {
    RANGES.lock()
}

/// Implements `cuMemHostAlloc`: allocates plain pages and registers them.
pub(crate) fn allocate(size: usize, flags: u32) -> CuResult<usize> {
    const KNOWN: u32 =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if size == 0 || flags & !KNOWN != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let pages = Pages::new(size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let address = pages.address();
    ranges().insert(address, Range { size, flags, pages: Some(pages) });
    Ok(address)
}

pub(crate) fn free(address: usize) -> CuResult {
    let mut ranges = ranges();
    if ranges.get(&address).is_none_or(|range| range.pages.is_none()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let removed = ranges.remove(&address);
    drop(ranges);
    drop(removed);
    Ok(())
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
    ranges.insert(address, Range { size, flags, pages: None });
    Ok(())
}

pub(crate) fn unregister(address: usize) -> CuResult {
    let mut ranges = ranges();
    if ranges.get(&address).is_none_or(|range| range.pages.is_some()) {
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
}

/// Returns the registered range that contains an address.
pub(crate) fn find(address: usize) -> Option<RegisteredRange> {
    let ranges = ranges();
    let (start, range) = ranges.range(..=address).next_back()?;
    (address - start < range.size).then_some(RegisteredRange {
        start: *start,
        size: range.size,
        flags: range.flags,
    })
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
        let pinned = allocate(100, 0).unwrap();
        assert_eq!(find(pinned + 99), Some(RegisteredRange { start: pinned, size: 100, flags: 0 }));
        assert_eq!(find(pinned + 100), None);
        free(pinned).unwrap();
        assert_eq!(free(pinned), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
