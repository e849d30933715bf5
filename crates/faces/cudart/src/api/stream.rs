use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{CU_STREAM_PER_THREAD, CUevent, CUstream, CUstreamCallback};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{current, ordinal_of};
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry};

/// # Safety
/// `stream` is null or valid for a write.
unsafe fn create(stream: *mut CUstream, flags: c_uint, priority: Option<c_int>) -> RtResult {
    let current = current()?;
    if stream.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        match priority {
            None => current.driver.cuStreamCreate(stream, flags),
            Some(priority) => current.driver.cuStreamCreateWithPriority(stream, flags, priority),
        }
    }
}

entry! {
    /// Creates a stream that synchronises with the legacy default stream.
    fn cudaStreamCreate(stream: *mut CUstream) {
        create(stream, 0, None)
    }
    fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: c_uint) {
        create(stream, flags, None)
    }
    fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        create(stream, flags, Some(priority))
    }
    /// Destroys a stream after its work has ended. The default streams cannot be destroyed.
    fn cudaStreamDestroy(stream: CUstream) {
        let current = current()?;
        if stream.addr() <= CU_STREAM_PER_THREAD {
            return Err(RtError(code::INVALID_RESOURCE_HANDLE));
        }
        current.driver.cuStreamDestroy_v2(stream)
    }
}

/// Like [`entry!`], for functions that start with a stream. Also defines their second forms.
macro_rules! of_stream {
    ($($(#[$attribute:meta])* fn $name:ident, $ptsz:ident($stream:ident $(, $parameter:ident: $type:ty)* $(,)?) $body:block)+) => {$(
        entry! {
            $(#[$attribute])*
            fn $name($stream: CUstream $(, $parameter: $type)*) $body
        }
        entry! {
            $(#[$attribute])*
            ///
            /// For programs in which each thread has its own default stream.
            fn $ptsz($stream: CUstream $(, $parameter: $type)*) {
                let $stream = per_thread($stream);
                $body
            }
        }
    )+};
}
pub(crate) use of_stream;

of_stream! {
    /// Waits until a stream has done all its work.
    fn cudaStreamSynchronize, cudaStreamSynchronize_ptsz(stream) {
        current()?.driver.cuStreamSynchronize(stream)
    }
    /// Returns `cudaErrorNotReady` if a stream still has work to do.
    fn cudaStreamQuery, cudaStreamQuery_ptsz(stream) {
        current()?.driver.cuStreamQuery(stream)
    }
    /// Makes a stream wait for an event.
    fn cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz(stream, event: CUevent, flags: c_uint) {
        current()?.driver.cuStreamWaitEvent(stream, event, flags)
    }
    /// Calls a function of the program in the order of a stream. Driver and runtime use the same
    /// error codes for it.
    fn cudaStreamAddCallback, cudaStreamAddCallback_ptsz(
        stream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint
    ) {
        if flags != 0 || callback.is_none() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamAddCallback(stream, callback, data, 0)
    }
    fn cudaStreamGetFlags, cudaStreamGetFlags_ptsz(stream, flags: *mut c_uint) {
        if flags.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetFlags(stream, flags)
    }
    fn cudaStreamGetPriority, cudaStreamGetPriority_ptsz(stream, priority: *mut c_int) {
        if priority.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetPriority(stream, priority)
    }
    /// Returns an identifier that no other stream has or had.
    fn cudaStreamGetId, cudaStreamGetId_ptsz(stream, id: *mut u64) {
        if id.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuStreamGetId(stream, id)
    }
    /// Returns the ordinal of a stream's device.
    fn cudaStreamGetDevice, cudaStreamGetDevice_ptsz(stream, device: *mut c_int) {
        if device.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        device.write(ordinal_of(stream)?);
        Ok(())
    }
}
