//! Copies of bytes.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::array::Array;
use crate::core::copy::{Side, When};
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::slices::Slices;
use crate::core::stream::{Default, Stream};
use crate::core::{heap, platform};
use crate::edge::{Bytes, CuResult, Object as _, cu_stream_entry, require};

/// A copy in the default stream; the program's memory can be used again when it returns.
fn now(default: Default, to: Side, from: Side, size: usize) -> CuResult {
    let (context, stream) = Stream::resolve(std::ptr::null_mut(), default)?;
    capture::refuse_now(&context, &stream)?;
    context.copy(&stream, to, from, size as u64, When::Now)
}

fn later(default: Default, stream: CUstream, to: Side, from: Side, size: usize) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let work = || {
        let copy = Slices::linear(to, from, size);
        copy.check().map(|()| Work::Copy(Arc::downgrade(&context), copy))
    };
    if capture::takes(&context, &stream, work)? {
        return Ok(());
    }
    context.copy(&stream, to, from, size as u64, When::Later)
}

/// What an address names: "the runtime infers the kind of copy from the addresses".
///
/// # Safety
/// As [`Bytes::new`], if it is memory of the program.
unsafe fn side(address: CUdeviceptr, size: usize) -> CuResult<Side> {
    if platform::device_of(address).is_some() {
        return Ok(Side::Device(address));
    }
    // Nobody's memory here: penstockHeapRead and penstockHeapWrite are for those.
    require(!heap::is_address(address), CUDA_ERROR_INVALID_VALUE)?;
    let address = usize::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) }.map(Side::Host)
}

/// # Safety
/// As [`Bytes::new`].
unsafe fn host(address: *const c_void, size: usize) -> CuResult<Side> {
    // SAFETY: the caller's promise.
    unsafe { side(address.expose_provenance() as u64, size) }
}

/// Bytes of an array's first rows, which must be one row: the rows of an array are not one behind the other.
fn within(array: CUarray, offset: usize, size: usize) -> CuResult<Side> {
    let array = Array::borrow(array)?;
    let (row, offset) = (array.row, offset as u64);
    array.at([offset % row, offset / row, 0], (size as u64, 1)).map(Side::Device)
}

cu_stream_entry! {
    /// `cuMemcpy`.
    fn cuMemcpy / cuMemcpy_ptds |default| (to: CUdeviceptr, from: CUdeviceptr, size: usize) {
        // SAFETY: the program's memory.
        let (to, from) = unsafe { (side(to, size)?, side(from, size)?) };
        now(default, to, from, size)
    }
    /// `cuMemcpyAsync`.
    fn cuMemcpyAsync / cuMemcpyAsync_ptsz |default| (
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program's memory.
        let (to, from) = unsafe { (side(to, size)?, side(from, size)?) };
        later(default, stream, to, from, size)
    }
    /// `cuMemcpyHtoD`.
    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds |default| (to: CUdeviceptr, from: *const c_void, size: usize) {
        // SAFETY: the program's memory.
        let from = unsafe { host(from, size) }?;
        now(default, Side::Device(to), from, size)
    }
    /// `cuMemcpyHtoDAsync`.
    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz |default| (
        to: CUdeviceptr,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program's memory.
        let from = unsafe { host(from, size) }?;
        later(default, stream, Side::Device(to), from, size)
    }
    /// `cuMemcpyDtoH`.
    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds |default| (to: *mut c_void, from: CUdeviceptr, size: usize) {
        // SAFETY: the program's memory.
        let to = unsafe { host(to, size) }?;
        now(default, to, Side::Device(from), size)
    }
    /// `cuMemcpyDtoHAsync`.
    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz |default| (
        to: *mut c_void,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program's memory.
        let to = unsafe { host(to, size) }?;
        later(default, stream, to, Side::Device(from), size)
    }
    /// `cuMemcpyDtoD`.
    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds |default| (to: CUdeviceptr, from: CUdeviceptr, size: usize) {
        now(default, Side::Device(to), Side::Device(from), size)
    }
    /// `cuMemcpyDtoDAsync`.
    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz |default| (
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) {
        later(default, stream, Side::Device(to), Side::Device(from), size)
    }
    /// `cuMemcpyHtoA`: within one row of the array.
    fn cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds |default| (
        to: CUarray,
        offset: usize,
        from: *const c_void,
        size: usize,
    ) {
        // SAFETY: the program's memory.
        let from = unsafe { host(from, size) }?;
        now(default, within(to, offset, size)?, from, size)
    }
    /// `cuMemcpyHtoAAsync`: within one row of the array.
    fn cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz |default| (
        to: CUarray,
        offset: usize,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program's memory.
        let from = unsafe { host(from, size) }?;
        later(default, stream, within(to, offset, size)?, from, size)
    }
    /// `cuMemcpyAtoH`: within one row of the array.
    fn cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds |default| (
        to: *mut c_void,
        from: CUarray,
        offset: usize,
        size: usize,
    ) {
        // SAFETY: the program's memory.
        let to = unsafe { host(to, size) }?;
        now(default, to, within(from, offset, size)?, size)
    }
    /// `cuMemcpyAtoHAsync`: within one row of the array.
    fn cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz |default| (
        to: *mut c_void,
        from: CUarray,
        offset: usize,
        size: usize,
        stream: CUstream,
    ) {
        // SAFETY: the program's memory.
        let to = unsafe { host(to, size) }?;
        later(default, stream, to, within(from, offset, size)?, size)
    }
    /// `cuMemcpyDtoA`: within one row of the array.
    fn cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds |default| (
        to: CUarray,
        offset: usize,
        from: CUdeviceptr,
        size: usize,
    ) {
        now(default, within(to, offset, size)?, Side::Device(from), size)
    }
    /// `cuMemcpyAtoD`: within one row of the array.
    fn cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds |default| (
        to: CUdeviceptr,
        from: CUarray,
        offset: usize,
        size: usize,
    ) {
        now(default, Side::Device(to), within(from, offset, size)?, size)
    }
    /// `cuMemcpyAtoA`: within one row of each array.
    fn cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds |default| (
        to: CUarray,
        to_offset: usize,
        from: CUarray,
        from_offset: usize,
        size: usize,
    ) {
        now(default, within(to, to_offset, size)?, within(from, from_offset, size)?, size)
    }
    /// `cuMemcpyPeer`: the addresses say on which devices they are.
    fn cuMemcpyPeer / cuMemcpyPeer_ptds |default| (
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        size: usize,
    ) {
        super::peer::settle(to_context, from_context)?;
        now(default, Side::Device(to), Side::Device(from), size)?;
        // "... serialized with respect all pending and future asynchronous work in to the current context, srcContext, and
        // dstContext". Two contexts of one device have a legacy default stream each.
        super::peer::settle(to_context, from_context)
    }
    /// `cuMemcpyPeerAsync`: the addresses say on which devices they are.
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
        later(default, stream, Side::Device(to), Side::Device(from), size)
    }
}
