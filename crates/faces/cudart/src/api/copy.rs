//! Copies of linear memory, rows and boxes.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::Memcpy3DParms;

use crate::core::context::current;
use crate::core::copy::{Mode, RectSize, Rows, boxes, linear, rows, way};
use crate::edge::{RtError, RtResult, in_both_modes};

/// Copies consecutive bytes.
///
/// # Safety
/// Arguments are as CUDA requires of the functions below.
#[inline]
unsafe fn copy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let current = current()?;
    let way = way(current, kind, destination, source)?;
    // SAFETY: the caller upholds the contract of this function.
    unsafe { linear(current, destination, source, bytes, way, stream, mode) }
}

/// Copies a box.
///
/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn copy_boxes(parms: *const Memcpy3DParms, stream: CUstream, mode: Mode) -> RtResult {
    let current = current()?;
    if parms.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { boxes(current, &parms.read_unaligned(), stream, mode) }
}

in_both_modes! {
    fn cudaMemcpy, cudaMemcpy_ptds, cudaMemcpyAsync, cudaMemcpyAsync_ptsz(
        destination: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: c_int;
        stream, mode
    ) {
        copy(destination, source, bytes, kind, stream, mode)
    }
    /// Copies rows of memory.
    fn cudaMemcpy2D, cudaMemcpy2D_ptds, cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz(
        destination: *mut c_void,
        destination_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int;
        stream, mode
    ) {
        let to = Rows::Memory { pointer: destination, pitch: destination_pitch };
        let from = Rows::Memory { pointer: source.cast_mut(), pitch: source_pitch };
        rows(current()?, to, from, RectSize { width, height }, kind, stream, mode)
    }
    /// Copies a box of memory or of an array.
    fn cudaMemcpy3D, cudaMemcpy3D_ptds, cudaMemcpy3DAsync, cudaMemcpy3DAsync_ptsz(
        parms: *const Memcpy3DParms; stream, mode
    ) {
        copy_boxes(parms, stream, mode)
    }
}
