//! Capturing streams into graphs: the driver does it.

use std::ffi::{c_int, c_uint};

use penstock_cuda_sys::driver::{CUgraph, CUgraphEdgeData, CUgraphNode, CUstream};

use crate::api::streams::of_stream;
use crate::core::context::current;
use crate::core::per_thread;
use crate::edge::{RtError, RtResult, entry, major};

/// Modes of capturing: global, of the thread, relaxed.
const CAPTURE_MODES: c_int = 3;

/// What a capture is like.
///
/// # Safety
/// The places are null or may be written.
unsafe fn info(
    stream: CUstream,
    (status, id): (*mut c_uint, *mut u64),
    graph: *mut CUgraph,
    (dependencies, edges, count): (
        *mut *const CUgraphNode,
        *mut *const CUgraphEdgeData,
        *mut usize,
    ),
) -> RtResult {
    if status.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe {
        current()?.driver.cuStreamGetCaptureInfo(
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
/// The lists are null or have `count` elements.
unsafe fn update(
    stream: CUstream,
    nodes: *mut CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> RtResult {
    // SAFETY: as the caller promises.
    unsafe {
        current()?.driver.cuStreamUpdateCaptureDependencies(stream, nodes, edges, count, flags)
    }
}

of_stream! {
    /// Begins a capture.
    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(stream, mode: c_uint) {
        current()?.driver.cuStreamBeginCapture(stream, mode)
    }
    /// Begins a capture into a graph of the program.
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
    /// Ends a capture.
    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz(stream, graph: *mut CUgraph) {
        current()?.driver.cuStreamEndCapture(stream, graph)
    }
    /// Whether a stream is captured.
    fn cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz(stream, status: *mut c_uint) {
        current()?.driver.cuStreamIsCapturing(stream, status)
    }
    /// What a capture is like. In version 12 this has three parameters.
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
            info(stream, (status, id), graph, (dependencies, edges, count))
        } else {
            info(stream, (status, id), null, (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut()))
        }
    }
    /// What a capture is like.
    fn cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz(
        stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) {
        info(stream, (status, id), graph, (dependencies, std::ptr::null_mut(), count))
    }
    /// What a capture is like.
    fn cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz(
        stream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) {
        info(stream, (status, id), graph, (dependencies, edges, count))
    }
    /// What the next node of a stream comes after. In version 12 this is told nothing of edges.
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
            // Of a number of 32 bits the rest of the place is anything.
            let flags = c_uint::try_from(count_or_flags & 0xffff_ffff).unwrap_or(c_uint::MAX);
            update(stream, nodes, std::ptr::null(), edges_or_count, flags)
        }
    }
    /// What the next node of a stream comes after.
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
    /// Exchanges what calls a thread may make while streams are captured.
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        if mode.is_null() || !(0..CAPTURE_MODES).contains(&mode.read()) {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuThreadExchangeStreamCaptureMode(mode.cast())
    }
}
