//! Primary contexts of devices.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::platform;
use crate::edge::{Object as _, cu_entry, require, store};

cu_entry! {
    fn cuDevicePrimaryCtxRetain(result: *mut CUcontext, dev: CUdevice) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = platform::device(dev)?.retain_primary()?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    fn cuDevicePrimaryCtxRelease(dev: CUdevice) {
        platform::device(dev)?.release_primary()
    }
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        platform::device(dev)?.release_primary()
    }
    fn cuDevicePrimaryCtxReset(dev: CUdevice) {
        platform::device(dev)?.reset_primary()
    }
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        platform::device(dev)?.reset_primary()
    }
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) {
        platform::device(dev)?.set_primary_flags(flags)
    }
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) {
        platform::device(dev)?.set_primary_flags(flags)
    }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let (set, is_active) = platform::device(dev)?.primary_state();
        // SAFETY: the program promises that `flags` is null or writable.
        unsafe { store(flags, set) };
        // SAFETY: the program promises that `active` is null or writable.
        unsafe { store(active, is_active.into()) };
        Ok(())
    }
}
