//! Symmetric heaps: functions that CUDA does not have. `include/penstock_cuda.h` describes them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::time::Duration;

use penstock_client::Range;
use penstock_cuda_sys::driver::*;
use penstock_wire::describe::HeapPath;

pub use crate::core::heap::PenstockHeap;
use crate::core::heap::{Heap, fail_with, last_message};
use crate::core::heap_launch::HeapKernel;
use crate::core::launch::LaunchParams;
use crate::core::module::Function;
use crate::core::platform;
use crate::core::shape::LaunchShape;
use crate::core::stream::Stream;
use crate::edge::{
    Bytes, CuResult, HostTarget, Object as _, array, cu_entry, load, require, store, text,
};

/// Returns the value of `PENSTOCK_HEAP_OWN`, `PENSTOCK_HEAP_SHARED` or `PENSTOCK_HEAP_PROXY`.
fn path_number(path: HeapPath) -> c_uint {
    match path {
        HeapPath::Own => 0,
        HeapPath::Shared => 1,
        HeapPath::Proxy | HeapPath::ProxyUcx => 2,
    }
}

/// Layout of `penstockHeapOptions` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    /// Longest wait in a kernel, in milliseconds; 0 for the default.
    pub timeout_ms: c_uint,
    /// If not 0, devices of different processes use the proxy.
    pub force_proxy: c_int,
}

/// Returns the heap of a handle.
fn heap_of(heap: *mut PenstockHeap) -> CuResult<std::sync::Arc<Heap>> {
    Heap::borrow(heap).map_err(|code| fail_with(code, "this is not a heap, or it has been closed"))
}

/// Checks the description of one kernel.
///
/// # Safety
/// `kernelParams` is null or has an address for each parameter of the function.
unsafe fn one(described: &CUDA_LAUNCH_PARAMS) -> CuResult<HeapKernel> {
    let function = Function::borrow(described.function).map_err(|code| {
        fail_with(
            code,
            "one of the functions is not a CUfunction; a CUkernel handle names no device",
        )
    })?;
    let context = function
        .loaded
        .context()
        .map_err(|code| fail_with(code, "the context of a function has been destroyed"))?;
    let stream = Stream::resolve_in(described.hStream, &context)
        .map_err(|code| fail_with(code, "a stream is invalid, or not of its function's context"))?;
    let params = match described.kernelParams.is_null() {
        true => LaunchParams::None,
        false => LaunchParams::Each(described.kernelParams.cast_const().cast()),
    };
    // SAFETY: the caller promises that `kernelParams` has an address for each parameter.
    let params = unsafe { function.packed(&params) }
        .map_err(|code| fail_with(code, "a kernel has parameters, but kernelParams lacks some"))?;
    let shape = LaunchShape {
        grid: [described.gridDimX, described.gridDimY, described.gridDimZ],
        block: [described.blockDimX, described.blockDimY, described.blockDimZ],
        dynamic: described.sharedMemBytes,
    };
    Ok(HeapKernel { function, context, stream, shape, params })
}

cu_entry! {
    fn penstockHeapCreate(
        heap: *mut *mut PenstockHeap,
        count: c_uint,
        devices: *const CUdevice,
        bytes: usize,
        options: *const HeapOptions,
    ) {
        require(!heap.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `devices` is null or has `count` elements.
        let devices = unsafe { array(devices, count as usize) }.map_err(|code| fail_with(code, "there is no list of devices"))?;
        let options = match options.is_null() {
            true => HeapOptions { timeout_ms: 0, force_proxy: 0 },
            // SAFETY: the program promises that `options` is null or readable.
            false => unsafe { load(options) }?,
        };
        let devices = devices
            .iter()
            .map(|ordinal| platform::device(*ordinal).cloned().map_err(|code| fail_with(code, &format!("there is no device {ordinal}"))))
            .collect::<CuResult<Vec<_>>>()?;
        let timeout = (options.timeout_ms > 0).then(|| Duration::from_millis(options.timeout_ms.into()));
        let made = Heap::create(devices, bytes as u64, timeout, (options.force_proxy != 0).then_some(true))?;
        // SAFETY: the program promises that `heap` is null or writable.
        unsafe { store(heap, made.raw()) };
        Ok(())
    }
    fn penstockHeapClose(heap: *mut PenstockHeap) {
        heap_of(heap)?.close()
    }
    fn penstockHeapGetPointer(heap: *mut PenstockHeap, pe: c_uint, pointer: *mut CUdeviceptr) {
        require(!pointer.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let heap = heap_of(heap)?;
        heap.device(pe)?;
        // SAFETY: the program promises that `pointer` is null or writable.
        unsafe { store(pointer, heap.address()) };
        Ok(())
    }
    fn penstockHeapGetSize(heap: *mut PenstockHeap, count: *mut c_uint, bytes: *mut usize) {
        let heap = heap_of(heap)?;
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, c_uint::try_from(heap.count()).unwrap_or(c_uint::MAX)) };
        // SAFETY: the program promises that `bytes` is null or writable.
        unsafe { store(bytes, usize::try_from(heap.bytes()).unwrap_or(usize::MAX)) };
        Ok(())
    }
    fn penstockHeapGetPath(heap: *mut PenstockHeap, from: c_uint, to: c_uint, path: *mut c_uint) {
        require(!path.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let found = heap_of(heap)?.path(from, to)?;
        // SAFETY: the program promises that `path` is null or writable.
        unsafe { store(path, path_number(found)) };
        Ok(())
    }
    fn penstockHeapLaunch(heap: *mut PenstockHeap, launches: *const CUDA_LAUNCH_PARAMS, count: c_uint) {
        let heap = heap_of(heap)?;
        // SAFETY: the program promises that `launches` is null or has `count` elements.
        let launches = unsafe { array(launches, count as usize) }.map_err(|code| fail_with(code, "there is no list of launches"))?;
        // SAFETY: the program promises what `one` demands.
        let all = launches.iter().map(|launch| unsafe { one(launch) }).collect::<CuResult<Vec<_>>>()?;
        heap.launch(&all)
    }
    fn penstockHeapRead(heap: *mut PenstockHeap, pe: c_uint, offset: usize, to: *mut c_void, bytes: usize) {
        let heap = heap_of(heap)?;
        // SAFETY: the program promises `bytes` bytes at `to`.
        let to = unsafe { Bytes::new(to, bytes) }.map_err(|code| fail_with(code, "there is no memory to read into"))?;
        heap.read(pe, Range { offset: offset as u64, size: bytes as u64 }, HostTarget::linear(to))
    }
    fn penstockHeapWrite(heap: *mut PenstockHeap, pe: c_uint, offset: usize, from: *const c_void, bytes: usize) {
        let heap = heap_of(heap)?;
        // SAFETY: the program promises `bytes` bytes at `from`.
        let from = unsafe { Bytes::new(from, bytes) }.map_err(|code| fail_with(code, "there is no memory to write from"))?;
        heap.write(pe, offset as u64, from.read())
    }
    fn penstockHeapAbort(heap: *mut PenstockHeap, reason: *const c_char) {
        let heap = heap_of(heap)?;
        // SAFETY: the program promises that `reason` is null or a string.
        let reason = if reason.is_null() { c"the program" } else { unsafe { text(reason) }? };
        heap.abort(&reason.to_string_lossy())
    }
    fn penstockHeapGetAborted(heap: *mut PenstockHeap, aborted: *mut c_int) {
        require(!aborted.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let reason = heap_of(heap)?.aborted();
        _ = fail_with(CUDA_SUCCESS, reason.as_deref().unwrap_or_default());
        // SAFETY: the program promises that `aborted` is null or writable.
        unsafe { store(aborted, reason.is_some().into()) };
        Ok(())
    }
    fn penstockHeapReset(heap: *mut PenstockHeap) {
        heap_of(heap)?.reset()
    }
}

/// Returns the message of the last of these functions that failed in this thread, or the reason
/// that `penstockHeapGetAborted` found. Never `NULL`. Valid until the thread calls one of these
/// functions again.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub extern "C" fn penstockHeapGetText() -> *const c_char {
    last_message()
}
