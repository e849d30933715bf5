//! Streams.

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
/// `result` is `NULL` or a place for a handle.
unsafe fn create(result: *mut CUstream, flags: c_uint, priority: c_int) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // "If the priority is outside the supported range it is clamped": there is one.
    let stream = Stream::create(&Context::current()?, flags, priority.clamp(0, 0))?;
    // SAFETY: the caller's promise.
    unsafe { store(result, stream.raw()) };
    Ok(())
}

cu_entry! {
    /// `cuStreamCreate`.
    fn cuStreamCreate(result: *mut CUstream, flags: c_uint) {
        // SAFETY: the program's place.
        unsafe { create(result, flags, 0) }
    }
    /// `cuStreamCreateWithPriority`.
    fn cuStreamCreateWithPriority(result: *mut CUstream, flags: c_uint, priority: c_int) {
        // SAFETY: the program's place.
        unsafe { create(result, flags, priority) }
    }
    /// `cuStreamDestroy`.
    fn cuStreamDestroy(stream: CUstream) {
        Context::current()?;
        Stream::borrow(stream)?.destroy()
    }
    /// `cuStreamDestroy`.
    fn cuStreamDestroy_v2(stream: CUstream) {
        Context::current()?;
        Stream::borrow(stream)?.destroy()
    }
}

cu_stream_entry! {
    /// `cuStreamSynchronize`.
    fn cuStreamSynchronize / cuStreamSynchronize_ptsz |default| (stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        capture::refuse(&context, &stream)?;
        context.synchronize_stream(&stream)
    }
    /// `cuStreamQuery`.
    fn cuStreamQuery / cuStreamQuery_ptsz |default| (stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        capture::refuse(&context, &stream)?;
        stream.query(&context)
    }
    /// `cuStreamWaitEvent`.
    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz |default| (stream: CUstream, event: CUevent, flags: c_uint) {
        require(flags <= CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let event = Event::borrow(event)?;
        if capture::waits(&context, &stream, &event, flags == CU_EVENT_WAIT_EXTERNAL)? {
            return Ok(());
        }
        match event.awaited()? {
            Some(event) => context.wait_in(&stream, &event),
            // "If cuEventRecord() has not been called on hEvent, this call acts as if the record has already completed".
            None => context.check(),
        }
    }
    /// `cuLaunchHostFunc`.
    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz |default| (
        stream: CUstream,
        function: CUhostFn,
        user_data: *mut c_void,
    ) {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program's function, with what it is to get.
        let call = unsafe { HostCall::new(function, user_data) };
        if capture::takes(&context, &stream, || Ok(Work::Host(call)))? {
            return Ok(());
        }
        callback::in_stream(&context, &stream, move |status| {
            // "... a host function ... will not be called in the event of an error in the CUDA context."
            if status == CUDA_SUCCESS {
                call.call();
            }
        })
    }
    /// `cuStreamAddCallback`.
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
        // A graph has no handle of a stream to call it with.
        capture::refuse(&context, &stream)?;
        let user_data = UserData::new(user_data);
        callback::in_stream(&context, &stream, move |status| {
            // SAFETY: the program's function, with what it is to get.
            unsafe { function(handle.get().cast(), status, user_data.get()) };
        })
    }
    /// `cuStreamGetFlags`.
    fn cuStreamGetFlags / cuStreamGetFlags_ptsz |default| (stream: CUstream, flags: *mut c_uint) {
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the number.
        unsafe { store(flags, stream.flags) };
        Ok(())
    }
    /// `cuStreamGetPriority`.
    fn cuStreamGetPriority / cuStreamGetPriority_ptsz |default| (stream: CUstream, priority: *mut c_int) {
        require(!priority.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the number.
        unsafe { store(priority, stream.priority) };
        Ok(())
    }
    /// `cuStreamGetId`.
    fn cuStreamGetId / cuStreamGetId_ptsz |default| (stream: CUstream, id: *mut u64) {
        require(!id.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the number.
        unsafe { store(id, stream.number()) };
        Ok(())
    }
    /// `cuStreamGetCtx`.
    fn cuStreamGetCtx / cuStreamGetCtx_ptsz |default| (stream: CUstream, result: *mut CUcontext) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, context.raw()) };
        Ok(())
    }
    /// `cuStreamGetCtx`, which tells of green contexts too; there are none.
    fn cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz |default| (
        stream: CUstream,
        result: *mut CUcontext,
        green: *mut *mut c_void,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, context.raw()) };
        // SAFETY: a place for the handle.
        unsafe { store(green, std::ptr::null_mut()) };
        Ok(())
    }
    /// `cuStreamGetDevice`.
    fn cuStreamGetDevice / cuStreamGetDevice_ptsz |default| (stream: CUstream, dev: *mut CUdevice) {
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, _) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the device.
        unsafe { store(dev, context.device.number()) };
        Ok(())
    }
}
