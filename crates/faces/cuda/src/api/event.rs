use std::ffi::c_uint;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::event::Event;
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, Object as _, check_process, cu_entry, cu_stream_entry, forget, require, store,
};

fn destroy(event: CUevent) -> CuResult {
    check_process()?;
    let event = Event::borrow(event)?;
    forget(&*event).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// `ms` is null or writable.
unsafe fn elapsed(ms: *mut f32, start: CUevent, end: CUevent) -> CuResult {
    check_process()?;
    require(!ms.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let elapsed = Event::borrow(start)?.elapsed_ms(&*Event::borrow(end)?)?;
    // SAFETY: the caller promises that `ms` is null or writable.
    unsafe { store(ms, elapsed) };
    Ok(())
}

cu_entry! {
    fn cuEventCreate(result: *mut CUevent, flags: c_uint) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let event = Event::create(&*Context::current()?, flags)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, event.raw()) };
        Ok(())
    }
    fn cuEventDestroy, cuEventDestroy_v2(event: CUevent) {
        destroy(event)
    }
    fn cuEventQuery(event: CUevent) {
        check_process()?;
        Event::borrow(event)?.query()
    }
    fn cuEventSynchronize(event: CUevent) {
        check_process()?;
        Event::borrow(event)?.synchronize()
    }
    fn cuEventElapsedTime, cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent) {
        // SAFETY: the program promises what `elapsed` demands.
        unsafe { elapsed(ms, start, end) }
    }
}

cu_stream_entry! {
    fn cuEventRecord / cuEventRecord_ptsz |default| (event: CUevent, stream: CUstream) {
        let (context, stream) = Stream::resolve(stream, default)?;
        Event::borrow(event)?.take_record(&context, &stream, false)
    }
    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz |default| (
        event: CUevent,
        stream: CUstream,
        flags: c_uint,
    ) {
        require(flags <= CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        Event::borrow(event)?.take_record(&context, &stream, flags == CU_EVENT_RECORD_EXTERNAL)
    }
}
