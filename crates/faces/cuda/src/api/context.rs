use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::{destroy as context_end, platform};
use crate::edge::{CuResult, Object as _, check_process, cu_entry, load, require, store};

/// # Safety
/// `result` is null or writable.
unsafe fn create(result: *mut CUcontext, flags: c_uint, dev: CUdevice) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::new(platform::device(dev)?, flags, false)?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, context.raw()) };
    // "The context is created with a usage count of 1 and ... is current to the calling CPU
    // thread".
    Context::push(context);
    Ok(())
}

fn destroy(raw: CUcontext) -> CuResult {
    check_process()?;
    let context = Context::borrow(raw)?;
    // "cuCtxDestroy ... a primary context" is an error, because the program must release it
    // instead.
    require(!context.is_primary, CUDA_ERROR_INVALID_CONTEXT)?;
    // "If ctx is current to the calling thread then ctx will also be popped from the current
    // thread's context stack".
    if context.is_current() {
        _ = Context::pop();
    }
    context_end::context(&context)
}

/// # Safety
/// `result` is null or writable.
unsafe fn pop(result: *mut CUcontext) -> CuResult {
    check_process()?;
    let context = Context::pop()?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, context.raw()) };
    Ok(())
}

fn push(raw: CUcontext) -> CuResult {
    check_process()?;
    Context::push(Context::borrow(raw)?);
    Ok(())
}

cu_entry! {
    fn cuCtxCreate, cuCtxCreate_v2(result: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, flags, dev) }
    }
    /// The list of execution affinities must be empty, because no device here supports them.
    fn cuCtxCreate_v3(result: *mut CUcontext, _list: *mut CUexecAffinityParam, count: c_int, flags: c_uint, dev: CUdevice) {
        require(count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)?;
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, flags, dev) }
    }
    /// Execution affinities and graphics must be empty, because no device here supports them.
    fn cuCtxCreate_v4(result: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice) {
        if !params.is_null() {
            // SAFETY: the program promises that `params` is null or readable: an address, a number,
            // an address.
            let [list, count, graphics] = unsafe { load(params) }?;
            let none = (list == 0 || count & 0xffff_ffff == 0) && graphics == 0;
            require(none, CUDA_ERROR_NOT_SUPPORTED)?;
        }
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, flags, dev) }
    }
    fn cuCtxDestroy, cuCtxDestroy_v2(context: CUcontext) {
        destroy(context)
    }
    fn cuCtxAttach(result: *mut CUcontext, flags: c_uint) {
        require(!result.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        context.attach();
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    fn cuCtxDetach(context: CUcontext) {
        check_process()?;
        let attached = Context::borrow(context)?;
        // "The context handle must ... be current to the calling thread".
        require(!attached.is_primary && attached.is_current(), CUDA_ERROR_INVALID_CONTEXT)?;
        if attached.detach() { destroy(context) } else { Ok(()) }
    }
    fn cuCtxPushCurrent, cuCtxPushCurrent_v2(context: CUcontext) {
        push(context)
    }
    fn cuCtxPopCurrent, cuCtxPopCurrent_v2(result: *mut CUcontext) {
        // SAFETY: the program promises what `pop` demands.
        unsafe { pop(result) }
    }
    fn cuCtxSetCurrent(context: CUcontext) {
        platform::devices()?;
        let context = if context.is_null() { None } else { Some(Context::borrow(context)?) };
        Context::set_current(context);
        Ok(())
    }
    fn cuCtxGetCurrent(result: *mut CUcontext) {
        platform::devices()?;
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let raw = Context::peek().map_or(null_mut(), |context| context.raw());
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, raw) };
        Ok(())
    }
    fn cuCtxGetDevice(dev: *mut CUdevice) {
        let context = Context::current()?;
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `dev` is null or writable.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
    /// The context need not be current.
    fn cuCtxGetDevice_v2(dev: *mut CUdevice, context: CUcontext) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `dev` is null or writable.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
    fn cuCtxGetFlags(flags: *mut c_uint) {
        let context = Context::current()?;
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `flags` is null or writable.
        unsafe { store(flags, context.flags()) };
        Ok(())
    }
    fn cuCtxSetFlags(flags: c_uint) {
        require(flags & !CU_CTX_FLAGS_MASK == 0, CUDA_ERROR_INVALID_VALUE)?;
        Context::current()?.set_flags(flags);
        Ok(())
    }
    fn cuCtxGetId(context: CUcontext, id: *mut u64) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!id.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `id` is null or writable.
        unsafe { store(id, context.number()) };
        Ok(())
    }
    fn cuCtxSynchronize() {
        capture::synchronize(&*Context::current()?)
    }
    /// The context need not be current.
    fn cuCtxSynchronize_v2(context: CUcontext) {
        let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        capture::synchronize(&context)
    }
    fn cuCtxGetLimit(value: *mut usize, limit: c_uint) {
        let context = Context::current()?;
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = usize::try_from(context.limit(limit)?).unwrap_or(usize::MAX);
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, answer) };
        Ok(())
    }
    fn cuCtxSetLimit(limit: c_uint, value: usize) {
        Context::current()?.set_limit(limit, value as u64)
    }
    fn cuCtxGetCacheConfig(config: *mut c_uint) {
        Context::current()?;
        require(!config.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `config` is null or writable. 0: no preference.
        unsafe { store(config, 0) };
        Ok(())
    }
    /// Ignores the hint, because devices here have no such setting.
    fn cuCtxSetCacheConfig(config: c_uint) {
        require(config <= 3, CUDA_ERROR_INVALID_VALUE)?;
        Context::current().map(drop)
    }
    fn cuCtxGetSharedMemConfig(config: *mut c_uint) {
        Context::current()?;
        require(!config.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `config` is null or writable. 1: banks of four bytes.
        unsafe { store(config, 1) };
        Ok(())
    }
    /// Ignores the hint, because devices here have no such setting.
    fn cuCtxSetSharedMemConfig(config: c_uint) {
        require(config <= 2, CUDA_ERROR_INVALID_VALUE)?;
        Context::current().map(drop)
    }
    fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) {
        if context.is_null() { Context::current()? } else { Context::borrow(context)? };
        require(!version.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `version` is null or writable. 3020 is the version of
        // the context functions.
        unsafe { store(version, 3020) };
        Ok(())
    }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        Context::current()?;
        // "A NULL value may be passed in for either". There are no priorities, so both are 0.
        // SAFETY: the program promises that `least` is null or writable.
        unsafe { store(least, 0) };
        // SAFETY: the program promises that `greatest` is null or writable.
        unsafe { store(greatest, 0) };
        Ok(())
    }
    /// Does nothing, because no device here has persisting lines.
    fn cuCtxResetPersistingL2Cache() {
        Context::current().map(drop)
    }
    /// Always fails, because no device here can be divided.
    fn cuCtxGetExecAffinity(_affinity: *mut CUexecAffinityParam, _kind: c_uint) {
        Context::current()?;
        Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
    }
}
