//! Functions of modules.

use std::ffi::{c_char, c_int, c_uint};

use penstock_cuda_sys::driver::*;
use penstock_ptx::ir::Entry;

use crate::core::library;
use crate::core::platform;
use crate::edge::{CuResult, cu_entry, require, store};

/// # Safety
/// `offset` and `size` are `NULL` or places for numbers.
pub(super) unsafe fn store_param(
    entry: &Entry,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CuResult {
    require(!offset.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let param = entry.params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { store(offset, param.offset as usize) };
    // SAFETY: the caller's promise.
    unsafe { store(size, param.size as usize) };
    Ok(())
}

cu_entry! {
    /// `cuFuncGetAttribute`.
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let answer = library::function(function)?.attribute(attribute)?;
        // SAFETY: a place for the number.
        unsafe { store(value, answer) };
        Ok(())
    }
    /// `cuFuncSetAttribute`.
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) {
        platform::check_process()?;
        library::function(function)?.set_attribute(attribute, value)
    }
    /// `cuFuncSetCacheConfig`: a wish, which devices here do not hear.
    fn cuFuncSetCacheConfig(function: CUfunction, config: c_uint) {
        require(config <= 3, CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        library::function(function).map(drop)
    }
    /// `cuFuncSetSharedMemConfig`: a wish, which devices here do not hear.
    fn cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint) {
        require(config <= 2, CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        library::function(function).map(drop)
    }
    /// `cuFuncGetModule`.
    fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) {
        require(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let function = library::function(function)?;
        // SAFETY: a place for the handle.
        unsafe { store(module, std::ptr::without_provenance_mut(usize::try_from(function.module).unwrap_or(0))) };
        Ok(())
    }
    /// `cuFuncGetName`. The name lives as long as the module.
    fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) {
        require(!name.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let function = library::function(function)?;
        // SAFETY: a place for the address.
        unsafe { store(name, function.c_name.as_ptr()) };
        Ok(())
    }
    /// `cuFuncGetParamInfo`.
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        platform::check_process()?;
        let function = library::function(function)?;
        // SAFETY: places for the numbers.
        unsafe { store_param(function.entry(), index, offset, size) }
    }
    /// `cuFuncIsLoaded`.
    fn cuFuncIsLoaded(state: *mut c_uint, function: CUfunction) {
        require(!state.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        library::function(function)?;
        // SAFETY: a place for the number: loaded.
        unsafe { store(state, 1) };
        Ok(())
    }
    /// `cuFuncLoad`: has the device's compiler work now.
    fn cuFuncLoad(function: CUfunction) {
        platform::check_process()?;
        library::function(function)?.threads_max().map(drop)
    }
}
