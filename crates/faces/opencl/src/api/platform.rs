//! Platforms.

use crate::core::extensions;
use crate::core::platform::Platform;
use crate::core::pool::platforms;
use crate::edge::{Answer, ClError, ClResult, Object, cl_entry, functions, require, store};
use penstock_cl_sys::*;
use std::ffi::c_void;

functions! {
    slots { clGetPlatformIDs, clGetPlatformInfo, clUnloadPlatformCompiler, clUnloadCompiler }
}

/// Host names of a platform's nodes. See include/CL/cl_penstock.h.
const CL_PLATFORM_HOSTNAME_PENSTOCK: cl_platform_info = 0x5053_0001;

cl_entry! {
    fn clGetPlatformIDs(num_entries: cl_uint, list: *mut cl_platform_id, num_platforms: *mut cl_uint) -> ClResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { give_platforms(num_entries, list, num_platforms) }
    }

    #[unsafe(no_mangle)]
    fn clGetPlatformInfo(
        platform: cl_platform_id,
        name: cl_platform_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let platform = Platform::borrow(platform)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_PLATFORM_PROFILE => answer.text("FULL_PROFILE"),
            CL_PLATFORM_VERSION => answer.text(concat!(
                "OpenCL 3.0 Penstock ",
                env!("CARGO_PKG_VERSION_MAJOR"),
                ".",
                env!("CARGO_PKG_VERSION_MINOR")
            )),
            CL_PLATFORM_NUMERIC_VERSION => answer.value(extensions::version(3, 0, 0)),
            CL_PLATFORM_NAME => answer.text(&platform.name),
            CL_PLATFORM_VENDOR => answer.text("Penstock"),
            CL_PLATFORM_EXTENSIONS => {
                let names: Vec<_> = platform.extensions.iter().map(extensions::text).collect();
                answer.text(&names.join(" "))
            }
            CL_PLATFORM_EXTENSIONS_WITH_VERSION => answer.values(&platform.extensions),
            CL_PLATFORM_HOST_TIMER_RESOLUTION => answer.value(platform.timer_resolution),
            CL_PLATFORM_ICD_SUFFIX_KHR => answer.text("PENSTOCK"),
            CL_PLATFORM_HOSTNAME_PENSTOCK => answer.text(&platform.hosts),
            // "CL_INVALID_VALUE if param_name is not one of the supported values".
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    /// Does nothing: the call is "a hint", and the nodes' compilers also serve other programs.
    fn clUnloadPlatformCompiler(platform: cl_platform_id) -> ClResult<()> {
        Platform::borrow(platform).map(drop)
    }

    /// Deprecated; the call does nothing.
    fn clUnloadCompiler() -> ClResult<()> {
        Ok(())
    }
}

/// Writes the platforms and their number.
///
/// # Safety
/// `list` is `NULL` or has room for `num_entries` platforms; `num_platforms` is `NULL` or writable.
pub(super) unsafe fn give_platforms(
    num_entries: cl_uint,
    list: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> ClResult {
    // "CL_INVALID_VALUE if num_entries is equal to zero and platforms is not NULL or if both
    // num_platforms and platforms are NULL."
    require(num_entries != 0 || list.is_null(), CL_INVALID_VALUE)?;
    require(!num_platforms.is_null() || !list.is_null(), CL_INVALID_VALUE)?;
    let all = platforms();
    // SAFETY: guaranteed by the caller.
    unsafe { store(num_platforms, cl_uint::try_from(all.len()).unwrap_or(cl_uint::MAX)) };
    // "... CL_PLATFORM_NOT_FOUND_KHR if the cl_khr_icd extension is enabled and no platforms are
    // found."
    require(!all.is_empty(), CL_PLATFORM_NOT_FOUND_KHR)?;
    if !list.is_null() {
        for (at, platform) in all.iter().take(num_entries as usize).enumerate() {
            // SAFETY: `at` is below `num_entries`.
            unsafe { store(list.add(at), platform.raw()) };
        }
    }
    Ok(())
}
