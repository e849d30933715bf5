//! Capture of streams into graphs, which the driver implements.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::{CUgraph, CUgraphEdgeData, CUgraphNode, CUstream};

use crate::api::stream::of_stream;
use crate::core::context::current;
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry, major};

/// Number of capture modes: global, thread-local, relaxed.
const CAPTURE_MODES: c_int = 3;

/// Queries the state of a capture.
///
/// # Safety
/// Each pointer is null or valid for a write.
unsafe fn info(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> RtResult {
    if status.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        current()?.driver.cuStreamGetCaptureInfo_v3(
            stream,
            status,
            id,
            graph,
            dependencies,
            edges,
            count,
        )
    }
}

/// # Safety
/// Each list is null or has `count` elements.
unsafe fn update(
    stream: CUstream,
    nodes: *mut CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> RtResult {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        current()?.driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags)
    }
}

of_stream! {
    /// Begins to capture a stream's work into a new graph.
    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(stream, mode: c_uint) {
        current()?.driver.cuStreamBeginCapture_v2(stream, mode)
    }
    /// Begins to capture a stream's work into a graph of the program.
    fn cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz(
        stream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        mode: c_uint,
    ) {
        current()?.driver.cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode)
    }
    /// Ends a capture and returns its graph.
    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz(stream, graph: *mut CUgraph) {
        current()?.driver.cuStreamEndCapture(stream, graph)
    }
    /// Reports whether a stream is being captured.
    fn cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz(stream, status: *mut c_uint) {
        current()?.driver.cuStreamIsCapturing(stream, status)
    }
    /// Queries a capture. In version 12, the function has the first three parameters only.
    fn cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz(
        stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) {
        let null = std::ptr::null_mut();
        if major() > 12 {
            info(stream, status, id, graph, dependencies, edges, count)
        } else {
            info(stream, status, id, null, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
        }
    }
    /// Queries a capture without its edge data.
    fn cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz(
        stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) {
        info(stream, status, id, graph, dependencies, std::ptr::null_mut(), count)
    }
    /// Queries a capture, with edge data.
    fn cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz(
        stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) {
        info(stream, status, id, graph, dependencies, edges, count)
    }
    /// Adds to or sets the nodes that a stream's next node depends on. In version 12, the function
    /// has no parameter for edges.
    fn cudaStreamUpdateCaptureDependencies, cudaStreamUpdateCaptureDependencies_ptsz(
        stream,
        nodes: *mut CUgraphNode,
        edges_or_count: usize,
        count_or_flags: usize,
        flags: c_uint,
    ) {
        if major() > 12 {
            update(stream, nodes, std::ptr::with_exposed_provenance(edges_or_count), count_or_flags, flags)
        } else {
            // The argument is a 32-bit number, so the upper half of the register is undefined.
            let flags = c_uint::try_from(count_or_flags & 0xffff_ffff).unwrap_or(c_uint::MAX);
            update(stream, nodes, std::ptr::null(), edges_or_count, flags)
        }
    }
    /// Adds to or sets the nodes that a stream's next node depends on.
    fn cudaStreamUpdateCaptureDependencies_v2, cudaStreamUpdateCaptureDependencies_v2_ptsz(
        stream,
        nodes: *mut CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        flags: c_uint,
    ) {
        update(stream, nodes, edges, count, flags)
    }
}

entry! {
    /// Exchanges the mode that says which calls this thread may make during captures.
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        if mode.is_null() || !(0..CAPTURE_MODES).contains(&mode.read()) {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuThreadExchangeStreamCaptureMode(mode.cast())
    }
}
