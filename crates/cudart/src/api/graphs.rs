//! Graphs: making and destroying them, their nodes and dependencies, and launches.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUhostFn, CUuserObject,
};

use crate::core::context::{current, device};
use crate::core::per_thread;
use crate::edge::{RtError, entry, major, on_stream};

/// Functions that are the driver's.
macro_rules! driver {
    ($($(#[$attribute:meta])* fn $name:ident = $of:ident($($parameter:ident: $type:ty),* $(,)?);)+) => {
        entry! {$(
            $(#[$attribute])*
            fn $name($($parameter: $type),*) {
                current()?.driver.$of($($parameter),*)
            }
        )+}
    };
}
pub(super) use driver;

driver! {
    /// A new graph.
    fn cudaGraphCreate = cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    /// Ends a graph.
    fn cudaGraphDestroy = cuGraphDestroy(graph: CUgraph);
    /// A copy of a graph.
    fn cudaGraphClone = cuGraphClone(copy: *mut CUgraph, graph: CUgraph);
    /// The node of a copy that stands for one of the original.
    fn cudaGraphNodeFindInClone = cuGraphNodeFindInClone(found: *mut CUgraphNode, node: CUgraphNode, copy: CUgraph);
    /// Ends a node.
    fn cudaGraphDestroyNode = cuGraphDestroyNode(node: CUgraphNode);
    /// What kind a node is of.
    fn cudaGraphNodeGetType = cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    /// The nodes of a graph.
    fn cudaGraphGetNodes = cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// The nodes of a graph that come after none.
    fn cudaGraphGetRootNodes = cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// The dependencies of a graph.
    fn cudaGraphGetEdges_v2 = cuGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    /// What a node comes after.
    fn cudaGraphNodeGetDependencies_v2 = cuGraphNodeGetDependencies(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    /// What comes after a node.
    fn cudaGraphNodeGetDependentNodes_v2 = cuGraphNodeGetDependentNodes(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    /// Adds dependencies.
    fn cudaGraphAddDependencies_v2 = cuGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
    );
    /// Removes dependencies.
    fn cudaGraphRemoveDependencies_v2 = cuGraphRemoveDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
    );
    /// Writes a graph into a file, for `dot`.
    fn cudaGraphDebugDotPrint = cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
    /// Makes a graph ready for launches.
    fn cudaGraphInstantiate = cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Makes a graph ready for launches.
    fn cudaGraphInstantiateWithFlags = cuGraphInstantiateWithFlags(
        exec: *mut CUgraphExec, graph: CUgraph, flags: u64,
    );
    /// How a graph was made ready.
    fn cudaGraphExecGetFlags = cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
    /// Ends what was made ready.
    fn cudaGraphExecDestroy = cuGraphExecDestroy(exec: CUgraphExec);
    /// Has what was made ready do what another graph does.
    fn cudaGraphExecUpdate = cuGraphExecUpdate(
        exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo,
    );
    /// Whether a node is left out.
    fn cudaGraphNodeSetEnabled = cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
    /// Whether a node is left out.
    fn cudaGraphNodeGetEnabled = cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
    /// An object of the program that graphs can keep.
    fn cudaUserObjectCreate = cuUserObjectCreate(
        object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint,
    );
    /// More references to one.
    fn cudaUserObjectRetain = cuUserObjectRetain(object: CUuserObject, count: c_uint);
    /// Fewer references to one.
    fn cudaUserObjectRelease = cuUserObjectRelease(object: CUuserObject, count: c_uint);
    /// Has a graph keep one.
    fn cudaGraphRetainUserObject = cuGraphRetainUserObject(
        graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint,
    );
    /// Has a graph keep one no longer.
    fn cudaGraphReleaseUserObject = cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
}

/// The functions below have what is to be known of edges among their parameters since version 13, before the number.
const fn with_edges<T>(
    edges_or_count: *mut T,
    count: *mut usize,
    major: c_int,
) -> (*mut T, *mut usize) {
    if major > 12 { (edges_or_count, count) } else { (std::ptr::null_mut(), edges_or_count.cast()) }
}

/// The same for a number that is given.
fn given_edges(edges_or_count: usize, count: usize) -> (*const CUgraphEdgeData, usize) {
    if major() > 12 {
        (std::ptr::with_exposed_provenance(edges_or_count), count)
    } else {
        (std::ptr::null(), edges_or_count)
    }
}

entry! {
    /// The dependencies of a graph.
    fn cudaGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphGetEdges(graph, from, to, edges, count)
    }
    /// What a node comes after.
    fn cudaGraphNodeGetDependencies(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphNodeGetDependencies(node, nodes, edges, count)
    }
    /// What comes after a node.
    fn cudaGraphNodeGetDependentNodes(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphNodeGetDependentNodes(node, nodes, edges, count)
    }
    /// Adds dependencies.
    fn cudaGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges_or_count: usize, count: usize,
    ) {
        let (edges, count) = given_edges(edges_or_count, count);
        current()?.driver.cuGraphAddDependencies(graph, from, to, edges, count)
    }
    /// Removes dependencies.
    fn cudaGraphRemoveDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges_or_count: usize, count: usize,
    ) {
        let (edges, count) = given_edges(edges_or_count, count);
        current()?.driver.cuGraphRemoveDependencies(graph, from, to, edges, count)
    }
    /// Makes a graph ready for launches.
    fn cudaGraphInstantiateWithParams(
        exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        current()?.driver.cuGraphInstantiateWithParams(exec, graph, params)
    }
    /// Makes a graph ready for launches, for programs whose default stream is each thread's own.
    fn cudaGraphInstantiateWithParams_ptsz(
        exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        if params.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let current = current()?;
        let mut given = params.read_unaligned();
        let stream = given.hUploadStream;
        given.hUploadStream = per_thread(stream);
        let made = current.driver.cuGraphInstantiateWithParams(exec, graph, &raw mut given);
        given.hUploadStream = stream;
        params.write_unaligned(given);
        made
    }
    /// Gives back what graphs of a device do not need.
    fn cudaDeviceGraphMemTrim(ordinal: c_int) {
        current()?.driver.cuDeviceGraphMemTrim(device(ordinal)?.handle)
    }
    /// How much memory graphs of a device have.
    fn cudaDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuDeviceGetGraphMemAttribute(device(ordinal)?.handle, attribute, value)
    }
    /// Sets the highest numbers of that back.
    fn cudaDeviceSetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuDeviceSetGraphMemAttribute(device(ordinal)?.handle, attribute, value)
    }
}

on_stream! {
    /// Launches a graph.
    fn cudaGraphLaunch, cudaGraphLaunch_ptsz(exec: CUgraphExec; stream) {
        current()?.driver.cuGraphLaunch(exec, stream)
    }
    /// Does what the first launch would do besides.
    fn cudaGraphUpload, cudaGraphUpload_ptsz(exec: CUgraphExec; stream) {
        current()?.driver.cuGraphUpload(exec, stream)
    }
}
