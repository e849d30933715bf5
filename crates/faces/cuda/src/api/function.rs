use std::ffi::{c_char, c_int, c_uint};

use penstock_cuda_sys::driver::*;
use penstock_ptx::ir::Entry;

use crate::core::library;
use crate::edge::{CuResult, check_process, cu_entry, require, store};

/// # Safety
/// `offset` and `size` are null or writable.
pub(super) unsafe fn store_param(
    entry: &Entry,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CuResult {
    require(!offset.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let param = entry.params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller promises that `offset` is null or writable.
    unsafe { store(offset, param.offset as usize) };
    // SAFETY: the caller promises that `size` is null or writable.
    unsafe { store(size, param.size as usize) };
    Ok(())
}

cu_entry! {
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let answer = library::function(function)?.attribute(attribute)?;
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, answer) };
        Ok(())
    }
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) {
        check_process()?;
        library::function(function)?.set_attribute(attribute, value)
    }
    /// Ignores the hint, because devices here have no such setting.
    fn cuFuncSetCacheConfig(function: CUfunction, config: c_uint) {
        require(config <= 3, CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        library::function(function).map(drop)
    }
    /// Ignores the hint, because devices here have no such setting.
    fn cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint) {
        require(config <= 2, CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        library::function(function).map(drop)
    }
    fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) {
        require(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let function = library::function(function)?;
        // SAFETY: the program promises that `module` is null or writable.
        unsafe { store(module, std::ptr::without_provenance_mut(usize::try_from(function.module).unwrap_or(0))) };
        Ok(())
    }
    /// The name lives as long as the module.
    fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) {
        require(!name.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let function = library::function(function)?;
        // SAFETY: the program promises that `name` is null or writable.
        unsafe { store(name, function.c_name.as_ptr()) };
        Ok(())
    }
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        check_process()?;
        let function = library::function(function)?;
        // SAFETY: the program promises what `store_param` demands.
        unsafe { store_param(function.entry(), index, offset, size) }
    }
    fn cuFuncIsLoaded(state: *mut c_uint, function: CUfunction) {
        require(!state.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        library::function(function)?;
        // SAFETY: the program promises that `state` is null or writable. 1: loaded.
        unsafe { store(state, 1) };
        Ok(())
    }
    /// Runs the device's compiler now.
    fn cuFuncLoad(function: CUfunction) {
        check_process()?;
        library::function(function)?.threads_max().map(drop)
    }
}
