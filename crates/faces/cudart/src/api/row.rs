//! Copies to and from arrays.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::CUarray;

use crate::core::array::{Bytes, run, run_between};
use crate::core::context::current;
use crate::core::copy::{ArrayPosition, Mode, RectSize, Rows, rows};
use crate::edge::{by_default, in_both_modes};

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
        let to = Rows::Array(ArrayPosition { array, x, y });
        let from = Rows::Memory { pointer: source.cast_mut(), pitch };
        rows(current()?, to, from, RectSize { width, height }, kind, stream, mode)
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
        let to = Rows::Memory { pointer: destination, pitch };
        let from = Rows::Array(ArrayPosition { array, x, y });
        rows(current()?, to, from, RectSize { width, height }, kind, stream, mode)
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
        let memory = Bytes { pointer: source.cast_mut(), count: bytes };
        run(current()?, ArrayPosition { array, x, y }, memory, true, kind, stream, mode)
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
        let memory = Bytes { pointer: destination, count: bytes };
        run(current()?, ArrayPosition { array, x, y }, memory, false, kind, stream, mode)
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
        let to = Rows::Array(ArrayPosition { array: destination, x: to_x, y: to_y });
        let from = Rows::Array(ArrayPosition { array: source, x: from_x, y: from_y });
        rows(current()?, to, from, RectSize { width, height }, kind, stream, Mode::Blocking)
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
        let to = ArrayPosition { array: destination, x: to_x, y: to_y };
        let from = ArrayPosition { array: source, x: from_x, y: from_y };
        run_between(current()?, to, from, bytes, kind, stream)
    }
}
