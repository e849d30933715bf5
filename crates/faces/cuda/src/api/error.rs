//! Names and texts of codes; initialisation and version.

use std::ffi::{c_char, c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::platform;
use crate::edge::{cu_entry, require, store};

cu_entry! {
    fn cuGetErrorName(error: CUresult, name: *mut *const c_char) {
        // "If error is not a recognized error code, CUDA_ERROR_INVALID_VALUE will be returned and
        // *pStr will be set to NULL."
        let entry = error.entry();
        // SAFETY: the program promises that `name` is null or writable.
        unsafe { store(name, entry.map_or(std::ptr::null(), |known| known.name.as_ptr())) };
        entry.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    fn cuGetErrorString(error: CUresult, text: *mut *const c_char) {
        let entry = error.entry();
        // SAFETY: the program promises that `text` is null or writable.
        unsafe { store(text, entry.map_or(std::ptr::null(), |known| known.text.as_ptr())) };
        entry.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    fn cuInit(flags: c_uint) {
        // "the Flags parameter must be 0"
        require(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        platform::init()
    }
    fn cuDriverGetVersion(version: *mut c_int) {
        require(!version.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `version` is null or writable.
        unsafe { store(version, DRIVER_VERSION) };
        Ok(())
    }
}
