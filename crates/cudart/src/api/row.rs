//! Copies to and from arrays.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::{CUarray, CUstream};

use crate::core::array::{Place, run, run_between};
use crate::core::context::current;
use crate::core::copy::{Mode, Rows, rows};
use crate::edge::{RtResult, by_default, in_both_modes};

/// Copies rows of memory, given with their pitch, into an array.
///
/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn to_array(
    place: Place,
    source: (*const c_void, usize),
    size: (usize, usize),
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let to = Rows::Array { array: place.array, x: place.x, y: place.y };
    let from = Rows::Memory { pointer: source.0.cast_mut(), pitch: source.1 };
    // SAFETY: the caller upholds the contract of this function.
    unsafe { rows(current()?, to, from, size, kind, stream, mode) }
}

/// Copies rows of an array into memory, given with its pitch.
///
/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn from_array(
    destination: (*mut c_void, usize),
    place: Place,
    size: (usize, usize),
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let to = Rows::Memory { pointer: destination.0, pitch: destination.1 };
    let from = Rows::Array { array: place.array, x: place.x, y: place.y };
    // SAFETY: the caller upholds the contract of this function.
    unsafe { rows(current()?, to, from, size, kind, stream, mode) }
}

in_both_modes! {
    fn cudaMemcpy2DToArray, cudaMemcpy2DToArray_ptds,
        cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz(
        array: CUarray,
        x: usize,
        y: usize,
        source: *const c_void,
        pitch: usize,
        width: usize,
        height: usize,
        kind: c_int;
        stream, mode
    ) {
        to_array(Place { array, x, y }, (source, pitch), (width, height), kind, stream, mode)
    }
    fn cudaMemcpy2DFromArray, cudaMemcpy2DFromArray_ptds,
        cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz(
        destination: *mut c_void,
        pitch: usize,
        array: CUarray,
        x: usize,
        y: usize,
        width: usize,
        height: usize,
        kind: c_int;
        stream, mode
    ) {
        from_array((destination, pitch), Place { array, x, y }, (width, height), kind, stream, mode)
    }
    /// Copies memory into consecutive rows of an array.
    fn cudaMemcpyToArray, cudaMemcpyToArray_ptds,
        cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz(
        array: CUarray,
        x: usize,
        y: usize,
        source: *const c_void,
        bytes: usize,
        kind: c_int;
        stream, mode
    ) {
        run(current()?, Place { array, x, y }, (source.cast_mut(), bytes), true, kind, stream, mode)
    }
    /// Copies consecutive rows of an array into memory.
    fn cudaMemcpyFromArray, cudaMemcpyFromArray_ptds,
        cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync_ptsz(
        destination: *mut c_void,
        array: CUarray,
        x: usize,
        y: usize,
        bytes: usize,
        kind: c_int;
        stream, mode
    ) {
        run(current()?, Place { array, x, y }, (destination, bytes), false, kind, stream, mode)
    }
}

by_default! {
    fn cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray_ptds(
        destination: CUarray,
        to_x: usize,
        to_y: usize,
        source: CUarray,
        from_x: usize,
        from_y: usize,
        width: usize,
        height: usize,
        kind: c_int;
        stream
    ) {
        let to = Rows::Array { array: destination, x: to_x, y: to_y };
        let from = Rows::Array { array: source, x: from_x, y: from_y };
        rows(current()?, to, from, (width, height), kind, stream, Mode::Blocking)
    }
    /// Copies consecutive rows of an array into another array.
    fn cudaMemcpyArrayToArray, cudaMemcpyArrayToArray_ptds(
        destination: CUarray,
        to_x: usize,
        to_y: usize,
        source: CUarray,
        from_x: usize,
        from_y: usize,
        bytes: usize,
        kind: c_int;
        stream
    ) {
        let to = Place { array: destination, x: to_x, y: to_y };
        let from = Place { array: source, x: from_x, y: from_y };
        run_between(current()?, to, from, bytes, kind, stream)
    }
}
