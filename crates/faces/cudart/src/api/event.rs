use std::ffi::c_uint;

use penstock_cuda_sys::driver::{CUevent, CUstream};

use crate::core::context::current;
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry, on_stream};

/// # Safety
/// `event` is null or valid for a write.
unsafe fn create(event: *mut CUevent, flags: c_uint) -> RtResult {
    let current = current()?;
    if event.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuEventCreate(event, flags) }
}

/// # Safety
/// `milliseconds` is null or valid for a write.
unsafe fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> RtResult {
    let current = current()?;
    if milliseconds.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuEventElapsedTime(milliseconds, start, end) }
}

entry! {
    fn cudaEventCreate(event: *mut CUevent) {
        create(event, 0)
    }
    fn cudaEventCreateWithFlags(event: *mut CUevent, flags: c_uint) {
        create(event, flags)
    }
    fn cudaEventDestroy(event: CUevent) {
        current()?.driver.cuEventDestroy_v2(event)
    }
    fn cudaEventSynchronize(event: CUevent) {
        current()?.driver.cuEventSynchronize(event)
    }
    /// Returns `cudaErrorNotReady` if an event has not completed.
    fn cudaEventQuery(event: CUevent) {
        current()?.driver.cuEventQuery(event)
    }
    /// Returns the milliseconds between two events.
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
    /// Returns the milliseconds between two events.
    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
    fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) {
        current()?.driver.cuEventRecordWithFlags(event, stream, flags)
    }
    /// Like the function above, for programs in which each thread has its own default stream.
    fn cudaEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) {
        current()?.driver.cuEventRecordWithFlags(event, per_thread(stream), flags)
    }
}

on_stream! {
    fn cudaEventRecord, cudaEventRecord_ptsz(event: CUevent; stream) {
        current()?.driver.cuEventRecord(event, stream)
    }
}
