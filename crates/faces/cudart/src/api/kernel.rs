//! Libraries of device code that a program loads itself.

use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::{CUdeviceptr, CUkernel, CUlibrary};

use crate::core::context::current;
use crate::core::registry::add_function;
use crate::core::store;
use crate::edge::{RtError, RtResult, entry};

entry! {
    /// Loads device code. Driver and runtime use the same options.
    fn cudaLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jit: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    ) {
        let current = current()?;
        if library.is_null() || code.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current.driver.cuLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count)
    }
    /// Loads device code from a file.
    fn cudaLibraryLoadFromFile(
        library: *mut CUlibrary, file: *const c_char, jit: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    ) {
        let current = current()?;
        if library.is_null() || file.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current.driver.cuLibraryLoadFromFile(library, file, jit, jit_values, jit_count, options, values, count)
    }
    fn cudaLibraryUnload(library: CUlibrary) {
        current()?.driver.cuLibraryUnload(library)
    }
    /// Returns a kernel by its name. The program can launch it by this handle.
    fn cudaLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        let current = current()?;
        if kernel.is_null() || name.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current.driver.cuLibraryGetKernel(kernel, library, name)?;
        // The driver accepts this handle in place of a function.
        add_function(kernel.read().cast());
        Ok(())
    }
    fn cudaLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) {
        let current = current()?;
        if count.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current.driver.cuLibraryGetKernelCount(count, library)
    }
    /// Returns up to `count` kernels of a library.
    fn cudaLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) {
        let current = current()?;
        if kernels.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut there = 0;
        current.driver.cuLibraryGetKernelCount(&raw mut there, library)?;
        current.driver.cuLibraryEnumerateKernels(kernels, count, library)?;
        for index in 0..there.min(count) as usize {
            add_function(kernels.add(index).read().cast());
        }
        Ok(())
    }
    /// Returns the address and the size in bytes of a library's variable.
    fn cudaLibraryGetGlobal(
        address: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    ) {
        let driver = current()?.driver;
        variable(address, bytes, name, |at, size| {
            driver.cuLibraryGetGlobal(at, size, library, name)
        })
    }
    /// Returns address and size of a managed variable of a library.
    fn cudaLibraryGetManaged(
        address: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    ) {
        let driver = current()?.driver;
        variable(address, bytes, name, |at, size| {
            driver.cuLibraryGetManaged(at, size, library, name)
        })
    }
}

/// Stores the address and the size of a variable that `find` gets from the driver by its name.
///
/// # Safety
/// `address` and `bytes` are null or valid for a write.
unsafe fn variable(
    address: *mut *mut c_void,
    bytes: *mut usize,
    name: *const c_char,
    find: impl FnOnce(*mut CUdeviceptr, *mut usize) -> RtResult,
) -> RtResult {
    if name.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    let (mut at, mut size) = (0, 0);
    find(&raw mut at, &raw mut size)?;
    let at = usize::try_from(at).map_err(|_| RtError::INVALID_VALUE)?;
    // SAFETY: the caller upholds the contract of this function.
    unsafe { store(address, std::ptr::without_provenance_mut(at)) };
    // SAFETY: the caller upholds the contract of this function.
    unsafe { store(bytes, size) };
    Ok(())
}
