//! Events.

use std::ffi::c_uint;

use penstock_cuda_sys::driver::{CUevent, CUstream};

use crate::core::context::current;
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry, on_stream};

/// # Safety
/// `event` is null or a place for it.
unsafe fn create(event: *mut CUevent, flags: c_uint) -> RtResult {
    let current = current()?;
    if event.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe { current.driver.cuEventCreate(event, flags) }
}

/// # Safety
/// `milliseconds` is null or a place for it.
unsafe fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> RtResult {
    let current = current()?;
    if milliseconds.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe { current.driver.cuEventElapsedTime(milliseconds, start, end) }
}

entry! {
    /// An event.
    fn cudaEventCreate(event: *mut CUevent) {
        create(event, 0)
    }
    /// An event.
    fn cudaEventCreateWithFlags(event: *mut CUevent, flags: c_uint) {
        create(event, flags)
    }
    /// Ends an event.
    fn cudaEventDestroy(event: CUevent) {
        current()?.driver.cuEventDestroy(event)
    }
    /// Waits for an event.
    fn cudaEventSynchronize(event: CUevent) {
        current()?.driver.cuEventSynchronize(event)
    }
    /// Whether an event has happened.
    fn cudaEventQuery(event: CUevent) {
        current()?.driver.cuEventQuery(event)
    }
    /// The time between two events.
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
    /// The time between two events.
    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
    /// Records an event.
    fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) {
        current()?.driver.cuEventRecordWithFlags(event, stream, flags)
    }
    /// Records an event, for programs whose default stream is each thread's own.
    fn cudaEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) {
        current()?.driver.cuEventRecordWithFlags(event, per_thread(stream), flags)
    }
}

on_stream! {
    /// Records an event.
    fn cudaEventRecord, cudaEventRecord_ptsz(event: CUevent; stream) {
        current()?.driver.cuEventRecord(event, stream)
    }
}
