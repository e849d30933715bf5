//! What the ICD loader asks of a driver: its platforms, its functions by name, and a word of its own in each object.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use super::{platform, table};
use crate::core::platform::Platform;
use crate::edge::{ClResult, Object, cl_entry, text};
use penstock_cl_sys::{CL_INVALID_VALUE, cl_platform_id, cl_uint};

cl_entry! {
    /// `clIcdGetPlatformIDsKHR`: what the loader calls for `clGetPlatformIDs`.
    #[unsafe(no_mangle)]
    fn clIcdGetPlatformIDsKHR(
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> ClResult<()> {
        // SAFETY: promised to this function.
        unsafe { platform::give_platforms(num_entries, platforms, num_platforms) }
    }

    /// `clIcdSetPlatformDispatchDataKHR`: the loader's own word, for all objects of a platform.
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
    /// `clIcdGetFunctionAddressForPlatformKHR`: as `clGetExtensionFunctionAddressForPlatform`, for every function.
    #[unsafe(no_mangle)]
    fn clIcdGetFunctionAddressForPlatformKHR(platform: cl_platform_id, name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: promised to this function.
        Platform::borrow(platform).and_then(|_| unsafe { address(name) }).unwrap_or(null_mut())
    }
}

cl_entry! {
    /// `clGetExtensionFunctionAddress`, deprecated: the loader finds the driver through it.
    #[unsafe(no_mangle)]
    fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: promised to this function.
        unsafe { address(name) }.unwrap_or(null_mut())
    }
}

cl_entry! {
    /// `clGetExtensionFunctionAddressForPlatform`.
    fn clGetExtensionFunctionAddressForPlatform(platform: cl_platform_id, name: *const c_char) -> *mut c_void, or null_mut(); {
        // SAFETY: promised to this function.
        Platform::borrow(platform).and_then(|_| unsafe { address(name) }).unwrap_or(null_mut())
    }
}

/// The function's address, or `NULL` for one that we do not have.
///
/// # Safety
/// `name` is `NULL` or a string.
unsafe fn address(name: *const c_char) -> ClResult<*mut c_void> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, CL_INVALID_VALUE) }?;
    Ok(table::address(name.to_bytes()).map_or(null_mut(), |address| address.cast_mut().cast()))
}
