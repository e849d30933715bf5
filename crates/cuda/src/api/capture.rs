//! Capturing streams into graphs.

use std::cell::RefCell;
use std::ffi::c_uint;
use std::ptr::null;

use penstock_cuda_sys::driver::*;
use rustc_hash::FxHashMap;

use super::graph::{edges_are_plain, handles, numbers};
use crate::core::graph::Graph;
use crate::core::graph::capture::{self, Info};
use crate::core::stream::{Default, Stream};
use crate::edge::{CuResult, Object as _, cu_entry, cu_stream_entry, load, require, store};

/// Places for what `cuStreamGetCaptureInfo` tells.
struct Places {
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

thread_local! {
    /// "... the array is valid until the next API call which operates on the stream or until the end of the capture", by the stream.
    static SHOWN: RefCell<FxHashMap<u64, Box<[CUgraphNode]>>> = RefCell::default();
}

/// # Safety
/// The places are `NULL` or may be written.
unsafe fn tell(stream: CUstream, default: Default, places: &Places) -> CuResult {
    require(!places.status.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let (context, stream) = Stream::resolve(stream, default)?;
    let info = capture::info(&context, &stream)?;
    let status = info.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |info| info.status);
    // SAFETY: a place for the number.
    unsafe { store(places.status, status) };
    let Some(Info { id, graph, tail, .. }) = info else {
        return SHOWN.with_borrow_mut(|shown| {
            shown.remove(&stream.number());
            Ok(())
        });
    };
    // SAFETY: a place for the number.
    unsafe { store(places.id, id) };
    if status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    let list: Box<[CUgraphNode]> = handles(&tail).collect();
    let (first, count) = (list.as_ptr(), list.len());
    if !places.dependencies.is_null() {
        SHOWN.with_borrow_mut(|shown| shown.insert(stream.number(), list));
    }
    // SAFETY: a place for the handle.
    unsafe { store(places.graph, graph.raw()) };
    // SAFETY: a place for the address.
    unsafe { store(places.dependencies, first) };
    // No edge is special.
    // SAFETY: a place for the address.
    unsafe { store(places.edges, null()) };
    // SAFETY: a place for the number.
    unsafe { store(places.count, count) };
    Ok(())
}

fn begin(stream: CUstream, default: Default, mode: c_uint) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    capture::begin(&context, &stream, mode, None)
}

/// # Safety
/// `nodes` and `edges` are `NULL` or have `count` elements.
unsafe fn update(
    stream: CUstream,
    default: Default,
    (nodes, edges, count): (*const CUgraphNode, *const CUgraphEdgeData, usize),
    flags: c_uint,
) -> CuResult {
    let (_, stream) = Stream::resolve(stream, default)?;
    // SAFETY: the caller's promise.
    unsafe { edges_are_plain(edges, count) }?;
    // SAFETY: the caller's promise.
    capture::update(&stream, &unsafe { numbers(nodes, count) }?, flags)
}

cu_entry! {
    /// `cuThreadExchangeStreamCaptureMode`.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        // SAFETY: a number of the program.
        let old = capture::exchange_mode(unsafe { load(mode) }?)?;
        // SAFETY: a place for the number.
        unsafe { store(mode, old) };
        Ok(())
    }
}

cu_stream_entry! {
    /// `cuStreamBeginCapture`.
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz |default| (stream: CUstream) {
        begin(stream, default, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }
    /// `cuStreamBeginCapture`.
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz |default| (stream: CUstream, mode: c_uint) {
        begin(stream, default, mode)
    }
    /// `cuStreamBeginCaptureToGraph`.
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
        // SAFETY: the program's list.
        unsafe { edges_are_plain(edges, count) }?;
        // SAFETY: the program's list.
        let nodes = unsafe { numbers(dependencies, count) }?;
        capture::begin(&context, &stream, mode, Some((graph, &nodes)))
    }
    /// `cuStreamEndCapture`.
    fn cuStreamEndCapture / cuStreamEndCapture_ptsz |default| (stream: CUstream, graph: *mut CUgraph) {
        require(!graph.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (_, stream) = Stream::resolve(stream, default)?;
        // SAFETY: a place for the handle.
        unsafe { store(graph, std::ptr::null_mut()) };
        let ended = capture::end(&stream)?;
        // SAFETY: a place for the handle.
        unsafe { store(graph, ended.raw()) };
        Ok(())
    }
    /// `cuStreamIsCapturing`.
    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz |default| (stream: CUstream, status: *mut c_uint) {
        require(!status.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        let info = capture::info(&context, &stream)?;
        // SAFETY: a place for the number.
        unsafe { store(status, info.map_or(CU_STREAM_CAPTURE_STATUS_NONE, |info| info.status)) };
        Ok(())
    }
    /// `cuStreamGetCaptureInfo`.
    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
    ) {
        let (graph, dependencies) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (edges, count) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the program's places.
        unsafe { tell(stream, default, &Places { status, id, graph, dependencies, edges, count }) }
    }
    /// `cuStreamGetCaptureInfo`.
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) {
        let edges = std::ptr::null_mut();
        // SAFETY: the program's places.
        unsafe { tell(stream, default, &Places { status, id, graph, dependencies, edges, count }) }
    }
    /// `cuStreamGetCaptureInfo`.
    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz |default| (
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) {
        // SAFETY: the program's places.
        unsafe { tell(stream, default, &Places { status, id, graph, dependencies, edges, count }) }
    }
    /// `cuStreamUpdateCaptureDependencies`.
    fn cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz |default| (
        stream: CUstream,
        nodes: *mut CUgraphNode,
        count: usize,
        flags: c_uint,
    ) {
        // SAFETY: the program's list.
        unsafe { update(stream, default, (nodes, null(), count), flags) }
    }
    /// `cuStreamUpdateCaptureDependencies`.
    fn cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz |default| (
        stream: CUstream,
        nodes: *mut CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        flags: c_uint,
    ) {
        // SAFETY: the program's list.
        unsafe { update(stream, default, (nodes, edges, count), flags) }
    }
}
