//! Number of blocks that run at once.
//!
//! A multiprocessor stands for a compute unit of the device, and we assume that a unit runs one
//! block at a time. So a program that sizes its grid by these numbers gets as many blocks as there
//! are units.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::{attribute, capability, library};
use crate::edge::{CuResult, check_process, cu_entry, require, store};

/// Returns the number of blocks of a function on one multiprocessor, 0 or 1.
fn active(function: CUfunction, threads: c_int, dynamic: usize) -> CuResult<c_int> {
    check_process()?;
    let function = library::function(function)?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|threads| *threads > 0)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let dynamic = u32::try_from(dynamic).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let shared = attribute::shared_bytes(&function.loaded.device).1;
    let fits = threads <= function.threads_max()?
        && function.entry().static_shared.checked_add(dynamic).is_some_and(|bytes| bytes <= shared);
    Ok(fits.into())
}

/// Stores the largest block, and the smallest grid that keeps the device busy.
///
/// # Safety
/// `grid` and `block` are null or writable; `dynamic_of` is null or a function of the program.
unsafe fn potential(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    dynamic_of: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
) -> CuResult {
    require(!grid.is_null() && !block.is_null() && limit >= 0, CUDA_ERROR_INVALID_VALUE)?;
    check_process()?;
    let function = library::function(function)?;
    let device = &function.loaded.device;
    let most = c_int::try_from(function.threads_max()?).unwrap_or(c_int::MAX);
    let most = if limit == 0 { most } else { most.min(limit) };
    let shared = attribute::shared_bytes(device).1;
    let warp = capability::WARP;
    let mut threads = if most >= warp { most / warp * warp } else { most };
    while threads > 0 {
        let bytes = match dynamic_of {
            // SAFETY: the caller promises that `dynamic_of` is a function of the program.
            Some(of) => unsafe { of(threads) },
            None => dynamic,
        };
        if bytes as u64 + u64::from(function.entry().static_shared) <= u64::from(shared) {
            break;
        }
        threads -= warp.min(threads);
    }
    // SAFETY: the caller promises that `block` is null or writable.
    unsafe { store(block, threads) };
    let units = c_int::try_from(device.facts.compute_units).unwrap_or(c_int::MAX);
    // SAFETY: the caller promises that `grid` is null or writable.
    unsafe { store(grid, if threads > 0 { units } else { 0 }) };
    Ok(())
}

cu_entry! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic: usize,
    ) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let active = active(function, threads, dynamic)?;
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, active) };
        Ok(())
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic: usize,
        flags: c_uint,
    ) {
        require(!count.is_null() && flags <= 1, CUDA_ERROR_INVALID_VALUE)?;
        let active = active(function, threads, dynamic)?;
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, active) };
        Ok(())
    }
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: c_int,
    ) {
        // SAFETY: the program promises what `potential` demands.
        unsafe { potential(grid, block, function, dynamic_of, dynamic, limit) }
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: c_int,
        flags: c_uint,
    ) {
        require(flags <= 1, CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises what `potential` demands.
        unsafe { potential(grid, block, function, dynamic_of, dynamic, limit) }
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize,
        function: CUfunction,
        blocks: c_int,
        threads: c_int,
    ) {
        require(!bytes.is_null() && blocks > 0 && threads > 0, CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let function = library::function(function)?;
        let shared = attribute::shared_bytes(&function.loaded.device).1 / blocks.unsigned_abs();
        let left = shared.saturating_sub(function.entry().static_shared);
        // SAFETY: the program promises that `bytes` is null or writable.
        unsafe { store(bytes, left as usize) };
        Ok(())
    }
}
