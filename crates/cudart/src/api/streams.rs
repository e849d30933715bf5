//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{CU_STREAM_PER_THREAD, CUevent, CUstream, CUstreamCallback};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{current, ordinal_of};
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry};

/// # Safety
/// `stream` is null or a place for it.
unsafe fn create(stream: *mut CUstream, flags: c_uint, priority: Option<c_int>) -> RtResult {
    let current = current()?;
    if stream.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe {
        match priority {
            None => current.driver.cuStreamCreate(stream, flags),
            Some(priority) => current.driver.cuStreamCreateWithPriority(stream, flags, priority),
        }
    }
}

entry! {
    /// A stream that waits for the default stream, and it for this one.
    fn cudaStreamCreate(stream: *mut CUstream) {
        create(stream, 0, None)
    }
    /// A stream.
    fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: c_uint) {
        create(stream, flags, None)
    }
    /// A stream with a priority.
    fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        create(stream, flags, Some(priority))
    }
    /// Ends a stream when its work is done. The default streams cannot be ended.
    fn cudaStreamDestroy(stream: CUstream) {
        let current = current()?;
        if stream.addr() <= CU_STREAM_PER_THREAD {
            return Err(RtError(code::INVALID_RESOURCE_HANDLE));
        }
        current.driver.cuStreamDestroy(stream)
    }
}

/// Functions whose first parameter is a stream: each comes with its second form.
macro_rules! of_stream {
    ($($(#[$attribute:meta])* fn $name:ident, $ptsz:ident($stream:ident $(, $parameter:ident: $type:ty)* $(,)?) $body:block)+) => {$(
        entry! {
            $(#[$attribute])*
            fn $name($stream: CUstream $(, $parameter: $type)*) $body
        }
        entry! {
            $(#[$attribute])*
            ///
            /// For programs whose default stream is each thread's own.
            fn $ptsz($stream: CUstream $(, $parameter: $type)*) {
                let $stream = per_thread($stream);
                $body
            }
        }
    )+};
}
pub(crate) use of_stream;

of_stream! {
    /// Waits until a stream has done all.
    fn cudaStreamSynchronize, cudaStreamSynchronize_ptsz(stream) {
        current()?.driver.cuStreamSynchronize(stream)
    }
    /// Whether a stream has done all.
    fn cudaStreamQuery, cudaStreamQuery_ptsz(stream) {
        current()?.driver.cuStreamQuery(stream)
    }
    /// Has a stream wait for an event.
    fn cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz(stream, event: CUevent, flags: c_uint) {
        current()?.driver.cuStreamWaitEvent(stream, event, flags)
    }
    /// Calls a function of the program when a stream gets there. The driver has the runtime's codes.
    fn cudaStreamAddCallback, cudaStreamAddCallback_ptsz(
        stream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint
    ) {
        if flags != 0 || callback.is_none() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamAddCallback(stream, callback, data, 0)
    }
    /// How a stream was made.
    fn cudaStreamGetFlags, cudaStreamGetFlags_ptsz(stream, flags: *mut c_uint) {
        if flags.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetFlags(stream, flags)
    }
    /// A stream's priority.
    fn cudaStreamGetPriority, cudaStreamGetPriority_ptsz(stream, priority: *mut c_int) {
        if priority.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetPriority(stream, priority)
    }
    /// A number that no other stream has or had.
    fn cudaStreamGetId, cudaStreamGetId_ptsz(stream, id: *mut u64) {
        if id.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetId(stream, id)
    }
    /// A stream's device.
    fn cudaStreamGetDevice, cudaStreamGetDevice_ptsz(stream, device: *mut c_int) {
        if device.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        device.write(ordinal_of(stream)?);
        Ok(())
    }
}
