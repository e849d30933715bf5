//! Versions, the driver's functions, and the profiler, which there is none of.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CU_GET_PROC_ADDRESS_SUCCESS,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::store;
use crate::driver::driver_as_it_is;
use crate::edge::{RtError, RtResult, entry, version};

/// Looks a function of the driver up.
///
/// # Safety
/// As the functions below ask.
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
    // SAFETY: as the caller promises.
    let result =
        unsafe { driver.cuGetProcAddress(symbol, function, version, flags, &raw mut found) };
    match result {
        Ok(()) => {}
        Err(RtError(code::SYMBOL_NOT_FOUND)) => {
            // SAFETY: not null, see above.
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
    // SAFETY: as the caller promises.
    unsafe { store(status, found) };
    Ok(())
}

/// Without other flags, functions with each thread's own default stream.
const fn per_thread_flags(flags: u64) -> u64 {
    if flags == 0 { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM } else { flags }
}

entry! {
    /// The version of the runtime interface.
    fn cudaRuntimeGetVersion(runtime_version: *mut c_int) {
        if runtime_version.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store(runtime_version, version());
        Ok(())
    }
    /// The version of the driver; 0 where there is none.
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
    /// A function of the driver, of this runtime's version.
    fn cudaGetDriverEntryPoint(symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint) {
        entry_point(symbol, function, version().cast_unsigned(), flags, status)
    }
    /// Like `cudaGetDriverEntryPoint`, for programs whose default stream is each thread's own.
    fn cudaGetDriverEntryPoint_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, version().cast_unsigned(), per_thread_flags(flags), status)
    }
    /// A function of the driver, of a version.
    fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, wanted: c_uint, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, wanted, flags, status)
    }
    /// Like `cudaGetDriverEntryPointByVersion`, for programs whose default stream is each thread's own.
    fn cudaGetDriverEntryPointByVersion_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, wanted: c_uint, flags: u64, status: *mut c_uint,
    ) {
        entry_point(symbol, function, wanted, per_thread_flags(flags), status)
    }
    /// Without a profiler there is nothing to start.
    fn cudaProfilerStart() { Ok(()) }
    /// Without a profiler there is nothing to stop.
    fn cudaProfilerStop() { Ok(()) }
}
