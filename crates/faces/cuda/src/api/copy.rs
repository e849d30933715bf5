//! Copies of contiguous bytes.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::array::Array;
use crate::core::copy::{CopyMode, CopySide};
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::row::RectSize;
use crate::core::slice::SliceCopy;
use crate::core::stream::Stream;
use crate::core::{heap, platform};
use crate::edge::{Bytes, CuResult, DefaultStream, Object as _, cu_stream_entry, require};

/// Copies in the default stream. The program may use its memory again afterwards.
fn now(default: DefaultStream, to: CopySide, from: CopySide, size: usize) -> CuResult {
    let (context, stream) = Stream::resolve(std::ptr::null_mut(), default)?;
    capture::refuse_now(&context, &stream)?;
    context.copy(&stream, to, from, size as u64, CopyMode::Now)
}

fn later(
    default: DefaultStream,
    stream: CUstream,
    to: CopySide,
    from: CopySide,
    size: usize,
) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let work = || {
        let copy = SliceCopy::linear(to, from, size);
        copy.check().map(|()| Work::Copy(Arc::downgrade(&context), copy))
    };
    if capture::takes(&context, &stream, work)? {
        return Ok(());
    }
    context.copy(&stream, to, from, size as u64, CopyMode::Later)
}

/// Returns the memory that an address belongs to: "the runtime infers the kind of copy from the
/// addresses".
///
/// # Safety
/// As [`Bytes::new`], if it is memory of the program.
unsafe fn side(address: CUdeviceptr, size: usize) -> CuResult<CopySide> {
    if platform::device_of(address).is_some() {
        return Ok(CopySide::Device(address));
    }
    // Addresses of heaps name no single memory. Programs use penstockHeapRead and
    // penstockHeapWrite.
    require(!heap::is_address(address), CUDA_ERROR_INVALID_VALUE)?;
    let address = usize::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller promises `size` bytes at `std::ptr::with_exposed_provenance(address)`.
    unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) }.map(CopySide::Host)
}

/// # Safety
/// As [`Bytes::new`].
unsafe fn host(address: *const c_void, size: usize) -> CuResult<CopySide> {
    // SAFETY: the caller promises `size` bytes at `address.expose_provenance() as u64`.
    unsafe { side(address.expose_provenance() as u64, size) }
}

/// Returns a range of an array's first slice. The range must lie in one row, because there are gaps
/// between rows.
fn within(array: CUarray, offset: usize, size: usize) -> CuResult<CopySide> {
    let array = Array::borrow(array)?;
    let (row, offset) = (array.row, offset as u64);
    let size = RectSize { width: size as u64, height: 1 };
    array.at([offset % row, offset / row, 0], size).map(CopySide::Device)
}

cu_stream_entry! {
    fn cuMemcpy / cuMemcpy_ptds |default| (to: CUdeviceptr, from: CUdeviceptr, size: usize) {
        // SAFETY: the program promises `size` bytes at `to` and `from`.
        let (to, from) = unsafe { (side(to, size)?, side(from, size)?) };
        now(default, to, from, size)
    }
    fn cuMemcpyAsync / cuMemcpyAsync_ptsz |default| (
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program promises `size` bytes at `to` and `from`.
        let (to, from) = unsafe { (side(to, size)?, side(from, size)?) };
        later(default, stream, to, from, size)
    }
    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds |default| (to: CUdeviceptr, from: *const c_void, size: usize) {
        // SAFETY: the program promises `size` bytes at `from`.
        let from = unsafe { host(from, size) }?;
        now(default, CopySide::Device(to), from, size)
    }
    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz |default| (
        to: CUdeviceptr,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program promises `size` bytes at `from`.
        let from = unsafe { host(from, size) }?;
        later(default, stream, CopySide::Device(to), from, size)
    }
    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds |default| (to: *mut c_void, from: CUdeviceptr, size: usize) {
        // SAFETY: the program promises `size` bytes at `to`.
        let to = unsafe { host(to, size) }?;
        now(default, to, CopySide::Device(from), size)
    }
    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz |default| (
        to: *mut c_void,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program promises `size` bytes at `to`.
        let to = unsafe { host(to, size) }?;
        later(default, stream, to, CopySide::Device(from), size)
    }
    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds |default| (to: CUdeviceptr, from: CUdeviceptr, size: usize) {
        now(default, CopySide::Device(to), CopySide::Device(from), size)
    }
    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz |default| (
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        later(default, stream, CopySide::Device(to), CopySide::Device(from), size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds |default| (
        to: CUarray,
        offset: usize,
        from: *const c_void,
        size: usize,
    ) {
        // SAFETY: the program promises `size` bytes at `from`.
        let from = unsafe { host(from, size) }?;
        now(default, within(to, offset, size)?, from, size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz |default| (
        to: CUarray,
        offset: usize,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program promises `size` bytes at `from`.
        let from = unsafe { host(from, size) }?;
        later(default, stream, within(to, offset, size)?, from, size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds |default| (
        to: *mut c_void,
        from: CUarray,
        offset: usize,
        size: usize,
    ) {
        // SAFETY: the program promises `size` bytes at `to`.
        let to = unsafe { host(to, size) }?;
        now(default, to, within(from, offset, size)?, size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz |default| (
        to: *mut c_void,
        from: CUarray,
        offset: usize,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program promises `size` bytes at `to`.
        let to = unsafe { host(to, size) }?;
        later(default, stream, to, within(from, offset, size)?, size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds |default| (
        to: CUarray,
        offset: usize,
        from: CUdeviceptr,
        size: usize,
    ) {
        now(default, within(to, offset, size)?, CopySide::Device(from), size)
    }
    /// The range must lie in one row of the array.
    fn cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds |default| (
        to: CUdeviceptr,
        from: CUarray,
        offset: usize,
        size: usize,
    ) {
        now(default, CopySide::Device(to), within(from, offset, size)?, size)
    }
    /// Each range must lie in one row of its array.
    fn cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds |default| (
        to: CUarray,
        to_offset: usize,
        from: CUarray,
        from_offset: usize,
        size: usize,
    ) {
        now(default, within(to, to_offset, size)?, within(from, from_offset, size)?, size)
    }
    /// The addresses tell the devices, so the contexts only serve for synchronisation.
    fn cuMemcpyPeer / cuMemcpyPeer_ptds |default| (
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        size: usize,
    ) {
        super::peer::synchronize_contexts(to_context, from_context)?;
        now(default, CopySide::Device(to), CopySide::Device(from), size)?;
        // "... serialized with respect all pending and future asynchronous work in to the current
        // context, srcContext, and dstContext". Two contexts of one device each have a legacy
        // default stream.
        super::peer::synchronize_contexts(to_context, from_context)
    }
    /// The addresses tell the devices.
    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz |default| (
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        size: usize,
        stream: CUstream,
    ) {
        super::peer::check(to_context, from_context)?;
        require(platform::device_of(to).is_some(), CUDA_ERROR_INVALID_VALUE)?;
        later(default, stream, CopySide::Device(to), CopySide::Device(from), size)
    }
}
