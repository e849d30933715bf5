//! Access between devices.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::platform;
use crate::edge::{CuResult, Object as _, cu_entry, require, store};

/// Checks that both handles are contexts.
pub(super) fn check(one: CUcontext, other: CUcontext) -> CuResult {
    Context::borrow(one)?;
    Context::borrow(other).map(drop)
}

/// "... is serialized with respect to all pending and future asynchronous work in to the current
/// context, source context, and destination context".
pub(super) fn synchronize_contexts(one: CUcontext, other: CUcontext) -> CuResult {
    capture::synchronize(&*Context::current()?)?;
    capture::synchronize(&*Context::borrow(one)?)?;
    capture::synchronize(&*Context::borrow(other)?)
}

cu_entry! {
    /// Always false: kernels can only access memory of their own device. Copies between devices
    /// need no access.
    fn cuDeviceCanAccessPeer(can: *mut c_int, dev: CUdevice, peer: CUdevice) {
        require(!can.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::device(dev)?;
        platform::device(peer)?;
        // SAFETY: the program promises that `can` is null or writable.
        unsafe { store(can, 0) };
        Ok(())
    }
    fn cuDeviceGetP2PAttribute(value: *mut c_int, _attribute: c_uint, from: CUdevice, to: CUdevice) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::device(from)?;
        platform::device(to)?;
        require(from != to, CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, 0) };
        Ok(())
    }
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) {
        require(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        Context::current()?;
        Context::borrow(peer)?;
        Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    }
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        Context::current()?;
        Context::borrow(peer)?;
        Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
    }
}
