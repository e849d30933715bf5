//! Versions, lookup of the driver's functions, and the profiler functions, which do nothing.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CU_GET_PROC_ADDRESS_SUCCESS,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::store;
use crate::driver::driver_as_it_is;
use crate::edge::{RtError, RtResult, entry, version};

/// Looks up a function of the driver.
///
/// # Safety
/// `symbol` is null or a C string. The other pointers are null or valid for writes.
unsafe fn entry_point(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_uint,
) -> RtResult {
    if symbol.is_null() || function.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    let version = c_int::try_from(version).map_err(|_| RtError::INVALID_VALUE)?;
    let driver = driver_as_it_is().ok_or(RtError(code::INSUFFICIENT_DRIVER))?;
    let mut found: c_uint = CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: the caller upholds the contract of this function.
    let result =
        unsafe { driver.cuGetProcAddress_v2(symbol, function, version, flags, &raw mut found) };
    match result {
        Ok(()) => {}
        Err(RtError(code::SYMBOL_NOT_FOUND)) => {
            // SAFETY: `function` is not null, and the caller guarantees that it can be written.
            unsafe { function.write(std::ptr::null_mut()) };
            if found == CU_GET_PROC_ADDRESS_SUCCESS {
                found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
            }
            if status.is_null() {
                return Err(RtError(code::SYMBOL_NOT_FOUND));
            }
        }
        Err(error) => return Err(error),
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { store(status, found) };
    Ok(())
}

/// If there are no flags, asks for the functions that use each thread's own default stream.
const fn per_thread_flags(flags: u64) -> u64 {
    if flags == 0 { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM } else { flags }
}

entry! {
    fn cudaRuntimeGetVersion(runtime_version: *mut c_int) {
        if runtime_version.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store(runtime_version, version());
        Ok(())
    }
    /// Returns the newest CUDA version that the driver supports, or 0 if there is no driver.
    fn cudaDriverGetVersion(driver_version: *mut c_int) {
        if driver_version.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        match driver_as_it_is() {
            Some(driver) => driver.cuDriverGetVersion(driver_version),
            None => {
                store(driver_version, 0);
                Ok(())
            }
        }
    }
    /// Returns a driver function as of this runtime's version.
    fn cudaGetDriverEntryPoint(symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint) {
        entry_point(symbol, function, version().cast_unsigned(), flags, status)
    }
    /// Like the function above, for programs in which each thread has its own default stream.
    fn cudaGetDriverEntryPoint_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, version().cast_unsigned(), per_thread_flags(flags), status)
    }
    /// Returns a driver function as of the version `wanted`.
    fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, wanted: c_uint, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, wanted, flags, status)
    }
    /// Like the function above, for programs in which each thread has its own default stream.
    fn cudaGetDriverEntryPointByVersion_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, wanted: c_uint, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, wanted, per_thread_flags(flags), status)
    }
    /// Does nothing, because there is no profiler.
    fn cudaProfilerStart() { Ok(()) }
    /// Does nothing, because there is no profiler.
    fn cudaProfilerStop() { Ok(()) }
}
