use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::callback;
use crate::core::context::Context;
use crate::core::event::Event;
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, HostCall, Object as _, UserData, cu_entry, cu_stream_entry, require, store,
};

/// # Safety
/// `result` is null or writable.
unsafe fn create(result: *mut CUstream, flags: c_uint, priority: c_int) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // "If the priority is outside the supported range it is clamped": the only priority is 0.
    let stream = Context::current()?.create_stream(flags, priority.clamp(0, 0))?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, stream.raw()) };
    Ok(())
}

cu_entry! {
    fn cuStreamCreate(result: *mut CUstream, flags: c_uint) {
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, flags, 0) }
    }
    fn cuStreamCreateWithPriority(result: *mut CUstream, flags: c_uint, priority: c_int) {
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, flags, priority) }
    }
    fn cuStreamDestroy, cuStreamDestroy_v2(stream: CUstream) {
        Context::current()?;
        capture::destroy_stream(&*Stream::borrow(stream)?)
    }
}

cu_stream_entry! {
    fn cuStreamSynchronize / cuStreamSynchronize_ptsz |default| (stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        capture::refuse(&context, &stream)?;
        context.synchronize_stream(&stream)
    }
    fn cuStreamQuery / cuStreamQuery_ptsz |default| (stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        capture::refuse(&context, &stream)?;
        context.query_stream(&stream)
    }
    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz |default| (stream: CUstream, event: CUevent, flags: c_uint) {
        require(flags <= CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let event = Event::borrow(event)?;
        if capture::waits(&context, &stream, &event, flags == CU_EVENT_WAIT_EXTERNAL)? {
            return Ok(());
        }
        match event.awaited()? {
            Some(event) => context.wait_in(&stream, &event),
            // "If cuEventRecord() has not been called on hEvent, this call acts as if the record
            // has already completed".
            None => context.act_in(&stream),
        }
    }
    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz |default| (
        stream: CUstream,
        function: CUhostFn,
        user_data: *mut c_void,
    ) {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises what `HostCall::new` demands.
        let call = unsafe { HostCall::new(function, user_data) };
        if capture::takes(&context, &stream, || Ok(Work::Host(call)))? {
            return Ok(());
        }
        callback::in_stream(&context, &stream, move |status| {
            // "... a host function ... will not be called in the event of an error in the CUDA
            // context."
            if status == CUDA_SUCCESS {
                call.call();
            }
        })
    }
    fn cuStreamAddCallback / cuStreamAddCallback_ptsz |default| (
        stream: CUstream,
        function: CUstreamCallback,
        user_data: *mut c_void,
        flags: c_uint,
    ) {
        // "Reserved for future use, must be 0"
        require(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let handle = UserData::new(stream.cast());
        let (context, stream) = Stream::resolve(stream, default)?;
        // A graph has no stream handle to pass to the function.
        capture::refuse(&context, &stream)?;
        let user_data = UserData::new(user_data);
        callback::in_stream(&context, &stream, move |status| {
            // SAFETY: the program promises that the function may be called with these arguments.
            unsafe { function(handle.get().cast(), status, user_data.get()) };
        })
    }
    fn cuStreamGetFlags / cuStreamGetFlags_ptsz |default| (stream: CUstream, flags: *mut c_uint) {
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `flags` is null or writable.
        unsafe { store(flags, stream.flags) };
        Ok(())
    }
    fn cuStreamGetPriority / cuStreamGetPriority_ptsz |default| (stream: CUstream, priority: *mut c_int) {
        require(!priority.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `priority` is null or writable.
        unsafe { store(priority, stream.priority) };
        Ok(())
    }
    fn cuStreamGetId / cuStreamGetId_ptsz |default| (stream: CUstream, id: *mut u64) {
        require(!id.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `id` is null or writable.
        unsafe { store(id, stream.number()) };
        Ok(())
    }
    fn cuStreamGetCtx / cuStreamGetCtx_ptsz |default| (stream: CUstream, result: *mut CUcontext) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    /// There are no green contexts, so `green` becomes null.
    fn cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz |default| (
        stream: CUstream,
        result: *mut CUcontext,
        green: *mut CUgreenCtx,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, context.raw()) };
        // SAFETY: the program promises that `green` is null or writable.
        unsafe { store(green, std::ptr::null_mut()) };
        Ok(())
    }
    fn cuStreamGetDevice / cuStreamGetDevice_ptsz |default| (stream: CUstream, dev: *mut CUdevice) {
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `dev` is null or writable.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
}
