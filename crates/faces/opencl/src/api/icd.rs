//! The functions that the ICD loader calls in a driver: it queries the platforms and functions by
//! name, and stores its dispatch data in each object.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use super::{platform, table};
use crate::core::platform::Platform;
use crate::edge::{ClResult, Object, cl_entry, functions, text};
use penstock_cl_sys::{CL_INVALID_VALUE, cl_platform_id, cl_uint};

functions! {
    slots { clGetExtensionFunctionAddress, clGetExtensionFunctionAddressForPlatform }
    named {
        clIcdGetPlatformIDsKHR, clIcdGetFunctionAddressForPlatformKHR,
        clIcdSetPlatformDispatchDataKHR,
    }
}

cl_entry! {
    /// Called by the loader for `clGetPlatformIDs`.
    #[unsafe(no_mangle)]
    fn clIcdGetPlatformIDsKHR(
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> ClResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { platform::give_platforms(num_entries, platforms, num_platforms) }
    }

    /// Stores the loader's dispatch data in all objects of a platform.
    #[unsafe(no_mangle)]
    fn clIcdSetPlatformDispatchDataKHR(platform: cl_platform_id, data: *mut c_void) -> ClResult<()> {
        let platform = Platform::borrow(platform)?;
        platform.set_dispatch_data(data.cast());
        for device in platform.devices() {
            device.set_dispatch_data(data.cast());
        }
        Ok(())
    }
}

cl_entry! {
    /// Like `clGetExtensionFunctionAddressForPlatform`, for every function.
    #[unsafe(no_mangle)]
    fn clIcdGetFunctionAddressForPlatformKHR(platform: cl_platform_id, name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: guaranteed by the caller.
        Platform::borrow(platform).and_then(|_| unsafe { address(name) }).unwrap_or(null_mut())
    }
}

cl_entry! {
    /// Deprecated, but the loader finds the driver through it.
    #[unsafe(no_mangle)]
    fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: guaranteed by the caller.
        unsafe { address(name) }.unwrap_or(null_mut())
    }
}

cl_entry! {
    fn clGetExtensionFunctionAddressForPlatform(platform: cl_platform_id, name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: guaranteed by the caller.
        Platform::borrow(platform).and_then(|_| unsafe { address(name) }).unwrap_or(null_mut())
    }
}

/// Returns the address of a function, or `NULL` if we do not implement it.
///
/// # Safety
/// `name` is `NULL` or a string.
unsafe fn address(name: *const c_char) -> ClResult<*mut c_void> {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { text(name, CL_INVALID_VALUE) }?;
    Ok(table::address(name.to_bytes()).map_or(null_mut(), |address| address.cast_mut().cast()))
}
