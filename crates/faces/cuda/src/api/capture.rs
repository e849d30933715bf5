//! Capture of streams into graphs.

use std::cell::RefCell;
use std::ffi::c_uint;
use std::ptr::null;

use penstock_cuda_sys::driver::*;
use rustc_hash::FxHashMap;

use super::graph::{edges_are_plain, handles, numbers};
use crate::core::graph::Graph;
use crate::core::graph::capture::{self, CaptureInfo};
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, DefaultStream, Object as _, cu_entry, cu_stream_entry, load, require, store,
};

/// Where `cuStreamGetCaptureInfo` stores its results.
struct InfoPointers {
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

thread_local! {
    /// Arrays returned to the program, by stream: "... the array is valid until the next API call
    /// which operates on the stream or until the end of the capture".
    static SHOWN: RefCell<FxHashMap<u64, Box<[CUgraphNode]>>> = RefCell::default();
}

/// # Safety
/// Each place is null or writable.
unsafe fn tell(stream: CUstream, default: DefaultStream, results: &InfoPointers) -> CuResult {
    require(!results.status.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let (context, stream) = Stream::resolve(stream, default)?;
    let info = capture::info(&context, &stream)?;
    let status = info.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |info| info.status);
    // SAFETY: the caller promises that `results.status` is null or writable.
    unsafe { store(results.status, status) };
    let Some(CaptureInfo { id, graph, tail, .. }) = info else {
        return SHOWN.with_borrow_mut(|shown| {
            shown.remove(&stream.number());
            Ok(())
        });
    };
    // SAFETY: the caller promises that `results.id` is null or writable.
    unsafe { store(results.id, id) };
    if status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    let list: Box<[CUgraphNode]> = handles(&tail).collect();
    let (first, count) = (list.as_ptr(), list.len());
    if !results.dependencies.is_null() {
        SHOWN.with_borrow_mut(|shown| shown.insert(stream.number(), list));
    }
    // SAFETY: the caller promises that `results.graph` is null or writable.
    unsafe { store(results.graph, graph.raw()) };
    // SAFETY: the caller promises that `results.dependencies` is null or writable.
    unsafe { store(results.dependencies, first) };
    // SAFETY: the caller promises that `results.edges` is null or writable. No edges have ports, so
    // there is no list.
    unsafe { store(results.edges, null()) };
    // SAFETY: the caller promises that `results.count` is null or writable.
    unsafe { store(results.count, count) };
    Ok(())
}

fn begin(stream: CUstream, default: DefaultStream, mode: c_uint) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    capture::begin(&context, &stream, mode, None)
}

/// # Safety
/// `nodes` and `edges` are null or have `count` elements.
unsafe fn update(
    stream: CUstream,
    default: DefaultStream,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> CuResult {
    let (_, stream) = Stream::resolve(stream, default)?;
    // SAFETY: the caller promises that `edges` is null or has `count` elements.
    unsafe { edges_are_plain(edges, count) }?;
    // SAFETY: the caller promises that `nodes` is null or has `count` elements.
    capture::update(&stream, &unsafe { numbers(nodes, count) }?, flags)
}

cu_entry! {
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        // SAFETY: the program promises that `mode` is null or readable.
        let old = capture::exchange_mode(unsafe { load(mode) }?)?;
        // SAFETY: the program promises that `mode` is null or writable.
        unsafe { store(mode, old) };
        Ok(())
    }
}

cu_stream_entry! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz |default| (stream: CUstream) {
        begin(stream, default, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz |default| (stream: CUstream, mode: c_uint) {
        begin(stream, default, mode)
    }
    fn cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz |default| (
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        mode: c_uint,
    ) {
        let (context, stream) = Stream::resolve(stream, default)?;
        let graph = Graph::borrow(graph)?;
        // SAFETY: the program promises that `edges` is null or has `count` elements.
        unsafe { edges_are_plain(edges, count) }?;
        // SAFETY: the program promises that `dependencies` is null or has `count` elements.
        let nodes = unsafe { numbers(dependencies, count) }?;
        capture::begin(&context, &stream, mode, Some((graph, &nodes)))
    }
    fn cuStreamEndCapture / cuStreamEndCapture_ptsz |default| (stream: CUstream, graph: *mut CUgraph) {
        require(!graph.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: the program promises that `graph` is null or writable.
        unsafe { store(graph, std::ptr::null_mut()) };
        let ended = capture::end(&stream)?;
        // SAFETY: the program promises that `graph` is null or writable.
        unsafe { store(graph, ended.raw()) };
        Ok(())
    }
    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz |default| (stream: CUstream, status: *mut c_uint) {
        require(!status.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let info = capture::info(&context, &stream)?;
        // SAFETY: the program promises that `status` is null or writable.
        unsafe { store(status, info.map_or(CU_STREAM_CAPTURE_STATUS_NONE, |info| info.status)) };
        Ok(())
    }
    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
    ) {
        let (graph, dependencies) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (edges, count) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the program promises what `tell` demands.
        unsafe { tell(stream, default, &InfoPointers { status, id, graph, dependencies, edges, count }) }
    }
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) {
        let edges = std::ptr::null_mut();
        // SAFETY: the program promises what `tell` demands.
        unsafe { tell(stream, default, &InfoPointers { status, id, graph, dependencies, edges, count }) }
    }
    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) {
        // SAFETY: the program promises what `tell` demands.
        unsafe { tell(stream, default, &InfoPointers { status, id, graph, dependencies, edges, count }) }
    }
    fn cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz |default| (
        stream: CUstream,
        nodes: *mut CUgraphNode,
        count: usize,
        flags: c_uint,
    ) {
        // SAFETY: the program promises what `update` demands.
        unsafe { update(stream, default, nodes, null(), count, flags) }
    }
    fn cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz |default| (
        stream: CUstream,
        nodes: *mut CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        flags: c_uint,
    ) {
        // SAFETY: the program promises what `update` demands.
        unsafe { update(stream, default, nodes, edges, count, flags) }
    }
}
