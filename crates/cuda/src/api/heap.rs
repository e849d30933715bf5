//! Symmetric heaps: functions of our own, beside those of the interface. `include/penstock_cuda.h` describes them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::time::Duration;

use penstock_client::Range;
use penstock_cuda_sys::driver::*;
use penstock_wire::describe::HeapPath;

pub use crate::core::heap::PenstockHeap;
use crate::core::heap::{Heap, One, tell, told};
use crate::core::launch::{Params, Shape};
use crate::core::module::Function;
use crate::core::platform;
use crate::core::stream::Stream;
use crate::edge::{
    Bytes, CuResult, HostTarget, Object as _, array, cu_entry, load, require, store, text,
};

/// `PENSTOCK_HEAP_OWN`, `PENSTOCK_HEAP_SHARED`, `PENSTOCK_HEAP_PROXY`.
fn path_number(path: HeapPath) -> c_uint {
    match path {
        HeapPath::Own => 0,
        HeapPath::Shared => 1,
        HeapPath::Proxy | HeapPath::ProxyUcx => 2,
    }
}

/// `penstockHeapOptions`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    /// How long a wait in a kernel may last, in ms; 0: the default.
    pub timeout_ms: c_uint,
    /// Not 0: the proxy between all devices that are served by different processes.
    pub force_proxy: c_int,
}

/// The heap of a handle.
fn heap_of(heap: *mut PenstockHeap) -> CuResult<std::sync::Arc<Heap>> {
    Heap::borrow(heap).map_err(|code| tell(code, "this is no heap, or it has been closed"))
}

/// One kernel as the program describes it.
///
/// # Safety
/// The parameters are those of the function.
unsafe fn one(described: &CUDA_LAUNCH_PARAMS) -> CuResult<One> {
    let function = Function::borrow(described.function).map_err(|code| {
        tell(code, "one of the functions is none; CUkernel handles have no device of their own")
    })?;
    let context = function
        .loaded
        .context()
        .map_err(|code| tell(code, "the context of a function has been destroyed"))?;
    let stream = Stream::resolve_in(described.hStream, &context)
        .map_err(|code| tell(code, "a stream is none, or not of the context of its function"))?;
    let params = match described.kernelParams.is_null() {
        true => Params::None,
        false => Params::Each(described.kernelParams.cast_const().cast()),
    };
    // SAFETY: the caller's promise.
    let params = unsafe { function.packed(&params) }
        .map_err(|code| tell(code, "a kernel has parameters, and not all of them were given"))?;
    let shape = Shape {
        grid: [described.gridDimX, described.gridDimY, described.gridDimZ],
        block: [described.blockDimX, described.blockDimY, described.blockDimZ],
        dynamic: described.sharedMemBytes,
    };
    Ok(One { function, context, stream, shape, params })
}

cu_entry! {
    /// `penstockHeapCreate`.
    fn penstockHeapCreate(
        heap: *mut *mut PenstockHeap,
        count: c_uint,
        devices: *const CUdevice,
        bytes: usize,
        options: *const HeapOptions,
    ) {
        require(!heap.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: so many devices.
        let devices = unsafe { array(devices, count as usize) }.map_err(|code| tell(code, "there is no list of devices"))?;
        let options = match options.is_null() {
            true => HeapOptions { timeout_ms: 0, force_proxy: 0 },
            // SAFETY: the program's options.
            false => unsafe { load(options) }?,
        };
        let devices = devices
            .iter()
            .map(|ordinal| platform::device(*ordinal).cloned().map_err(|code| tell(code, &format!("there is no device {ordinal}"))))
            .collect::<CuResult<Vec<_>>>()?;
        let timeout = (options.timeout_ms > 0).then(|| Duration::from_millis(options.timeout_ms.into()));
        let made = Heap::create(devices, bytes as u64, timeout, (options.force_proxy != 0).then_some(true))?;
        // SAFETY: a place for the handle.
        unsafe { store(heap, made.raw()) };
        Ok(())
    }
    /// `penstockHeapClose`.
    fn penstockHeapClose(heap: *mut PenstockHeap) {
        heap_of(heap)?.close()
    }
    /// `penstockHeapGetPointer`.
    fn penstockHeapGetPointer(heap: *mut PenstockHeap, pe: c_uint, pointer: *mut CUdeviceptr) {
        require(!pointer.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let heap = heap_of(heap)?;
        heap.device(pe)?;
        // SAFETY: a place for the address.
        unsafe { store(pointer, heap.address()) };
        Ok(())
    }
    /// `penstockHeapGetSize`.
    fn penstockHeapGetSize(heap: *mut PenstockHeap, count: *mut c_uint, bytes: *mut usize) {
        let heap = heap_of(heap)?;
        // SAFETY: places for the numbers.
        unsafe { store(count, c_uint::try_from(heap.count()).unwrap_or(c_uint::MAX)) };
        // SAFETY: places for the numbers.
        unsafe { store(bytes, usize::try_from(heap.bytes()).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// `penstockHeapGetPath`.
    fn penstockHeapGetPath(heap: *mut PenstockHeap, from: c_uint, to: c_uint, path: *mut c_uint) {
        require(!path.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let found = heap_of(heap)?.path(from, to)?;
        // SAFETY: a place for the number.
        unsafe { store(path, path_number(found)) };
        Ok(())
    }
    /// `penstockHeapLaunch`.
    fn penstockHeapLaunch(heap: *mut PenstockHeap, launches: *const CUDA_LAUNCH_PARAMS, count: c_uint) {
        let heap = heap_of(heap)?;
        // SAFETY: so many descriptions.
        let launches = unsafe { array(launches, count as usize) }.map_err(|code| tell(code, "there is no list of launches"))?;
        // SAFETY: the program's parameters.
        let all = launches.iter().map(|launch| unsafe { one(launch) }).collect::<CuResult<Vec<_>>>()?;
        heap.launch(&all)
    }
    /// `penstockHeapRead`.
    fn penstockHeapRead(heap: *mut PenstockHeap, pe: c_uint, offset: usize, to: *mut c_void, bytes: usize) {
        let heap = heap_of(heap)?;
        // SAFETY: the program's memory.
        let to = unsafe { Bytes::new(to, bytes) }.map_err(|code| tell(code, "there is no memory to read into"))?;
        heap.read(pe, Range { offset: offset as u64, size: bytes as u64 }, HostTarget::linear(to))
    }
    /// `penstockHeapWrite`.
    fn penstockHeapWrite(heap: *mut PenstockHeap, pe: c_uint, offset: usize, from: *const c_void, bytes: usize) {
        let heap = heap_of(heap)?;
        // SAFETY: the program's memory.
        let from = unsafe { Bytes::new(from, bytes) }.map_err(|code| tell(code, "there is no memory to write from"))?;
        heap.write(pe, offset as u64, from.read())
    }
    /// `penstockHeapAbort`.
    fn penstockHeapAbort(heap: *mut PenstockHeap, reason: *const c_char) {
        let heap = heap_of(heap)?;
        // SAFETY: the program's string.
        let reason = if reason.is_null() { c"the program" } else { unsafe { text(reason) }? };
        heap.abort(&reason.to_string_lossy())
    }
    /// `penstockHeapGetAborted`.
    fn penstockHeapGetAborted(heap: *mut PenstockHeap, aborted: *mut c_int) {
        require(!aborted.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let reason = heap_of(heap)?.aborted();
        _ = tell(CUDA_SUCCESS, reason.as_deref().unwrap_or_default());
        // SAFETY: a place for the number.
        unsafe { store(aborted, reason.is_some().into()) };
        Ok(())
    }
    /// `penstockHeapReset`.
    fn penstockHeapReset(heap: *mut PenstockHeap) {
        heap_of(heap)?.reset()
    }
}

/// `penstockHeapGetText`: what the last of these functions that failed in this thread had to say, and the reason that
/// `penstockHeapGetAborted` found. Never `NULL`; until the next of these functions is called in the thread.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub extern "C" fn penstockHeapGetText() -> *const c_char {
    told()
}
