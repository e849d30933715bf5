//! The primary context of each device.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::platform;
use crate::edge::{Object as _, cu_entry, require, store};

cu_entry! {
    /// `cuDevicePrimaryCtxRetain`.
    fn cuDevicePrimaryCtxRetain(result: *mut CUcontext, dev: CUdevice) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = platform::device(dev)?.retain_primary()?;
        // SAFETY: a place for the handle.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    /// `cuDevicePrimaryCtxRelease`.
    fn cuDevicePrimaryCtxRelease(dev: CUdevice) {
        platform::device(dev)?.release_primary()
    }
    /// `cuDevicePrimaryCtxRelease`.
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        platform::device(dev)?.release_primary()
    }
    /// `cuDevicePrimaryCtxReset`.
    fn cuDevicePrimaryCtxReset(dev: CUdevice) {
        platform::device(dev)?.reset_primary()
    }
    /// `cuDevicePrimaryCtxReset`.
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        platform::device(dev)?.reset_primary()
    }
    /// `cuDevicePrimaryCtxSetFlags`.
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) {
        platform::device(dev)?.set_primary_flags(flags)
    }
    /// `cuDevicePrimaryCtxSetFlags`.
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) {
        platform::device(dev)?.set_primary_flags(flags)
    }
    /// `cuDevicePrimaryCtxGetState`.
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let (set, is_active) = platform::device(dev)?.primary_state();
        // SAFETY: a place for the number.
        unsafe { store(flags, set) };
        // SAFETY: a place for the number.
        unsafe { store(active, is_active.into()) };
        Ok(())
    }
}
