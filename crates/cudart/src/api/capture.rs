//! Capturing streams into graphs, which is not served: no stream ever captures.

use std::ffi::c_int;

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::CAPTURE_STATUS_NONE;

use crate::edge::{RtError, RtResult, THREAD, entry};

/// Modes of capturing: global, of the thread, relaxed.
const CAPTURE_MODES: c_int = 3;

/// # Safety
/// `status` is null or a place for it.
unsafe fn none(status: *mut c_int) -> RtResult {
    if status.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe { status.write(CAPTURE_STATUS_NONE) };
    Ok(())
}

/// The functions that ask whether a stream captures differ in what they tell of one that does; all get the same answer.
macro_rules! none_captures {
    ($($name:ident)+) => {
        entry! {$(
            /// Whether a stream captures: none does.
            fn $name(_stream: CUstream, status: *mut c_int) {
                none(status)
            }
        )+}
    };
}
none_captures! {
    cudaStreamIsCapturing cudaStreamIsCapturing_ptsz
    cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_ptsz
    cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v2_ptsz
    cudaStreamGetCaptureInfo_v3 cudaStreamGetCaptureInfo_v3_ptsz
}

entry! {
    /// Exchanges what calls a thread may make while streams capture.
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        if mode.is_null() || !(0..CAPTURE_MODES).contains(&mode.read()) {
            return Err(RtError::INVALID_VALUE);
        }
        mode.write(THREAD.with(|thread| thread.capture_mode.replace(mode.read())));
        Ok(())
    }
}
