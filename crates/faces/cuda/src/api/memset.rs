use std::ffi::{c_uchar, c_uint, c_ushort};
use std::ptr::null_mut;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::host;
use crate::core::memset::{ElementRows, Memset};
use crate::core::stream::Stream;
use crate::edge::{CuResult, DefaultStream, cu_stream_entry};

/// Adds the fill to the capture of its stream. Returns false if the stream is not captured.
fn takes(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    rows: ElementRows,
    pattern: &[u8],
) -> CuResult<bool> {
    capture::takes(context, stream, || {
        let mut value = [0; 4];
        value.iter_mut().zip(pattern).for_each(|(to, from)| *to = *from);
        let ElementRows { to, pitch, width, height } = rows;
        let fill = Memset {
            to,
            pitch,
            value: u32::from_ne_bytes(value),
            element: u32::try_from(pattern.len()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?,
            width,
            height,
        };
        fill.check().map(|()| Work::Fill(Arc::downgrade(context), fill))
    })
}

fn fill(
    default: DefaultStream,
    stream: CUstream,
    to: CUdeviceptr,
    pattern: &[u8],
    count: usize,
) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let rows = ElementRows { to, pitch: 0, width: count as u64, height: 1 };
    if takes(&context, &stream, rows, pattern)? {
        return Ok(());
    }
    context.fill(&stream, to, pattern, rows.width)
}

fn fill_rows(
    default: DefaultStream,
    stream: CUstream,
    rows: ElementRows,
    pattern: &[u8],
) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    if takes(&context, &stream, rows, pattern)? {
        return Ok(());
    }
    context.fill_rows(&stream, rows, pattern)
}

/// "... asynchronous with respect to the host except when the target is pinned host memory or a
/// Unified Memory region, in which case they are fully synchronous."
fn finish(default: DefaultStream, to: CUdeviceptr) -> CuResult {
    if host::joint(to, 0).is_none() {
        return Ok(());
    }
    let (context, stream) = Stream::resolve(null_mut(), default)?;
    context.finish(&stream)
}

fn fill_now(default: DefaultStream, to: CUdeviceptr, pattern: &[u8], count: usize) -> CuResult {
    fill(default, null_mut(), to, pattern, count)?;
    finish(default, to)
}

fn fill_rows_now(default: DefaultStream, rows: ElementRows, pattern: &[u8]) -> CuResult {
    fill_rows(default, null_mut(), rows, pattern)?;
    finish(default, rows.to)
}

fn rows(to: CUdeviceptr, pitch: usize, width: usize, height: usize) -> ElementRows {
    ElementRows { to, pitch: pitch as u64, width: width as u64, height: height as u64 }
}

cu_stream_entry! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds |default| (to: CUdeviceptr, value: c_uchar, count: usize) {
        fill_now(default, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD8Async / cuMemsetD8Async_ptsz |default| (
        to: CUdeviceptr,
        value: c_uchar,
        count: usize,
        stream: CUstream,
    ) {
        fill(default, stream, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
    ) {
        fill_rows_now(default, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
        stream: CUstream,
    ) {
        fill_rows(default, stream, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds |default| (to: CUdeviceptr, value: c_ushort, count: usize) {
        fill_now(default, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD16Async / cuMemsetD16Async_ptsz |default| (
        to: CUdeviceptr,
        value: c_ushort,
        count: usize,
        stream: CUstream,
    ) {
        fill(default, stream, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
    ) {
        fill_rows_now(default, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
        stream: CUstream,
    ) {
        fill_rows(default, stream, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds |default| (to: CUdeviceptr, value: c_uint, count: usize) {
        fill_now(default, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD32Async / cuMemsetD32Async_ptsz |default| (
        to: CUdeviceptr,
        value: c_uint,
        count: usize,
        stream: CUstream,
    ) {
        fill(default, stream, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
    ) {
        fill_rows_now(default, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz |default| (
        to: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        stream: CUstream,
    ) {
        fill_rows(default, stream, rows(to, pitch, width, height), &value.to_ne_bytes())
    }
}
