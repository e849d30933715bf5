//! Contexts.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::platform;
use crate::edge::{CuResult, Object as _, cu_entry, load, require, store};

/// # Safety
/// `result` is `NULL` or a place for a handle.
unsafe fn create(result: *mut CUcontext, flags: c_uint, dev: CUdevice) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::new(platform::device(dev)?, flags, false)?;
    // SAFETY: the caller's promise.
    unsafe { store(result, context.raw()) };
    // "The context is created with a usage count of 1 and ... is current to the calling CPU thread".
    Context::push(context);
    Ok(())
}

fn destroy(raw: CUcontext) -> CuResult {
    platform::check_process()?;
    let context = Context::borrow(raw)?;
    // "cuCtxDestroy ... a primary context" is an error; the primary context is released.
    require(!context.is_primary, CUDA_ERROR_INVALID_CONTEXT)?;
    // "If ctx is current to the calling thread then ctx will also be popped from the current thread's context stack".
    if context.is_current() {
        _ = Context::pop();
    }
    context.destroy()
}

/// # Safety
/// `result` is `NULL` or a place for a handle.
unsafe fn pop(result: *mut CUcontext) -> CuResult {
    platform::check_process()?;
    let context = Context::pop()?;
    // SAFETY: the caller's promise.
    unsafe { store(result, context.raw()) };
    Ok(())
}

fn push(raw: CUcontext) -> CuResult {
    platform::check_process()?;
    Context::push(Context::borrow(raw)?);
    Ok(())
}

cu_entry! {
    /// `cuCtxCreate`.
    fn cuCtxCreate(result: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        // SAFETY: the program's place.
        unsafe { create(result, flags, dev) }
    }
    /// `cuCtxCreate`.
    fn cuCtxCreate_v2(result: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        // SAFETY: the program's place.
        unsafe { create(result, flags, dev) }
    }
    /// `cuCtxCreate`, with a list of execution affinities, which no device here has.
    fn cuCtxCreate_v3(result: *mut CUcontext, _list: *mut c_void, count: c_int, flags: c_uint, dev: CUdevice) {
        require(count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)?;
        // SAFETY: the program's place.
        unsafe { create(result, flags, dev) }
    }
    /// `cuCtxCreate`, with parameters for execution affinities and graphics, which no device here has.
    fn cuCtxCreate_v4(result: *mut CUcontext, params: *const [u64; 3], flags: c_uint, dev: CUdevice) {
        if !params.is_null() {
            // SAFETY: two addresses, and a number between them.
            let [list, count, graphics] = unsafe { load(params) }?;
            let none = (list == 0 || count & 0xffff_ffff == 0) && graphics == 0;
            require(none, CUDA_ERROR_NOT_SUPPORTED)?;
        }
        // SAFETY: the program's place.
        unsafe { create(result, flags, dev) }
    }
    /// `cuCtxDestroy`.
    fn cuCtxDestroy(context: CUcontext) {
        destroy(context)
    }
    /// `cuCtxDestroy`.
    fn cuCtxDestroy_v2(context: CUcontext) {
        destroy(context)
    }
    /// `cuCtxAttach`.
    fn cuCtxAttach(result: *mut CUcontext, flags: c_uint) {
        require(!result.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.attach();
        // SAFETY: a place for the handle.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    /// `cuCtxDetach`.
    fn cuCtxDetach(context: CUcontext) {
        platform::check_process()?;
        let attached = Context::borrow(context)?;
        // "The context handle must ... be current to the calling thread".
        require(!attached.is_primary && attached.is_current(), CUDA_ERROR_INVALID_CONTEXT)?;
        if attached.detach() { destroy(context) } else { Ok(()) }
    }
    /// `cuCtxPushCurrent`.
    fn cuCtxPushCurrent(context: CUcontext) {
        push(context)
    }
    /// `cuCtxPushCurrent`.
    fn cuCtxPushCurrent_v2(context: CUcontext) {
        push(context)
    }
    /// `cuCtxPopCurrent`.
    fn cuCtxPopCurrent(result: *mut CUcontext) {
        // SAFETY: the program's place.
        unsafe { pop(result) }
    }
    /// `cuCtxPopCurrent`.
    fn cuCtxPopCurrent_v2(result: *mut CUcontext) {
        // SAFETY: the program's place.
        unsafe { pop(result) }
    }
    /// `cuCtxSetCurrent`.
    fn cuCtxSetCurrent(context: CUcontext) {
        platform::devices()?;
        let context = if context.is_null() { None } else { Some(Context::borrow(context)?) };
        Context::set_current(context);
        Ok(())
    }
    /// `cuCtxGetCurrent`.
    fn cuCtxGetCurrent(result: *mut CUcontext) {
        platform::devices()?;
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let raw = Context::peek().map_or(null_mut(), |context| context.raw());
        // SAFETY: a place for the handle.
        unsafe { store(result, raw) };
        Ok(())
    }
    /// `cuCtxGetDevice`.
    fn cuCtxGetDevice(dev: *mut CUdevice) {
        let context = Context::current()?;
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the device.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
    /// `cuCtxGetDevice` of a context that need not be current.
    fn cuCtxGetDevice_v2(dev: *mut CUdevice, context: CUcontext) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the device.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
    /// `cuCtxGetFlags`.
    fn cuCtxGetFlags(flags: *mut c_uint) {
        let context = Context::current()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number.
        unsafe { store(flags, context.flags()) };
        Ok(())
    }
    /// `cuCtxSetFlags`.
    fn cuCtxSetFlags(flags: c_uint) {
        require(flags & !CU_CTX_FLAGS_MASK == 0, CUDA_ERROR_INVALID_VALUE)?;
        Context::current()?.set_flags(flags);
        Ok(())
    }
    /// `cuCtxGetId`.
    fn cuCtxGetId(context: CUcontext, id: *mut u64) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!id.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number.
        unsafe { store(id, context.number()) };
        Ok(())
    }
    /// `cuCtxSynchronize`.
    fn cuCtxSynchronize() {
        Context::current()?.synchronize()
    }
    /// `cuCtxSynchronize` of a context that need not be current.
    fn cuCtxSynchronize_v2(context: CUcontext) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        context.synchronize()
    }
    /// `cuCtxGetLimit`.
    fn cuCtxGetLimit(value: *mut usize, limit: c_uint) {
        let context = Context::current()?;
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = usize::try_from(context.limit(limit)?).unwrap_or(usize::MAX);
        // SAFETY: a place for the number.
        unsafe { store(value, answer) };
        Ok(())
    }
    /// `cuCtxSetLimit`.
    fn cuCtxSetLimit(limit: c_uint, value: usize) {
        Context::current()?.set_limit(limit, value as u64)
    }
    /// `cuCtxGetCacheConfig`.
    fn cuCtxGetCacheConfig(config: *mut c_uint) {
        Context::current()?;
        require(!config.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number: no preference.
        unsafe { store(config, 0) };
        Ok(())
    }
    /// `cuCtxSetCacheConfig`: a wish, which devices here do not hear.
    fn cuCtxSetCacheConfig(config: c_uint) {
        require(config <= 3, CUDA_ERROR_INVALID_VALUE)?;
        Context::current().map(drop)
    }
    /// `cuCtxGetSharedMemConfig`.
    fn cuCtxGetSharedMemConfig(config: *mut c_uint) {
        Context::current()?;
        require(!config.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number: banks of four bytes.
        unsafe { store(config, 1) };
        Ok(())
    }
    /// `cuCtxSetSharedMemConfig`: a wish, which devices here do not hear.
    fn cuCtxSetSharedMemConfig(config: c_uint) {
        require(config <= 2, CUDA_ERROR_INVALID_VALUE)?;
        Context::current().map(drop)
    }
    /// `cuCtxGetApiVersion`.
    fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) {
        if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!version.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number: the version of the context functions.
        unsafe { store(version, 3020) };
        Ok(())
    }
    /// `cuCtxGetStreamPriorityRange`.
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        Context::current()?;
        // "A NULL value may be passed in for either"; no priorities: both are 0.
        // SAFETY: a place for the number.
        unsafe { store(least, 0) };
        // SAFETY: a place for the number.
        unsafe { store(greatest, 0) };
        Ok(())
    }
    /// `cuCtxResetPersistingL2Cache`: no device here has such lines.
    fn cuCtxResetPersistingL2Cache() {
        Context::current().map(drop)
    }
    /// `cuCtxGetExecAffinity`: no device here can be divided.
    fn cuCtxGetExecAffinity(_affinity: *mut c_void, _kind: c_uint) {
        Context::current()?;
        Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
    }
}
