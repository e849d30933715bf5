//! Primary contexts of devices.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::{platform, primary};
use crate::edge::{Object as _, cu_entry, require, store};

cu_entry! {
    fn cuDevicePrimaryCtxRetain(result: *mut CUcontext, dev: CUdevice) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = primary::retain(platform::device(dev)?)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    fn cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        primary::release(platform::device(dev)?)
    }
    fn cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        primary::reset(platform::device(dev)?)
    }
    fn cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) {
        primary::set_flags(platform::device(dev)?, flags)
    }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let (set, is_active) = primary::state(platform::device(dev)?);
        // SAFETY: the program promises that `flags` is null or writable.
        unsafe { store(flags, set) };
        // SAFETY: the program promises that `active` is null or writable.
        unsafe { store(active, is_active.into()) };
        Ok(())
    }
}
