//! Graphs: creation, nodes and dependencies, instantiation, and launches.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use penstock_cuda_sys::driver::*;

use super::pass_on::pass_on;
use crate::core::context::{current, device};
use crate::core::per_thread;
use crate::edge::{RtError, entry, major, on_stream};

pass_on! {
    fn cudaGraphCreate = cuGraphCreate;
    fn cudaGraphDestroy = cuGraphDestroy;
    fn cudaGraphClone = cuGraphClone;
    /// Finds the node of a copy that stands for a node of the original.
    fn cudaGraphNodeFindInClone = cuGraphNodeFindInClone;
    fn cudaGraphDestroyNode = cuGraphDestroyNode;
    fn cudaGraphNodeGetType = cuGraphNodeGetType;
    /// Returns the nodes of a graph and their number.
    fn cudaGraphGetNodes = cuGraphGetNodes;
    /// Returns the nodes of a graph that depend on no other node.
    fn cudaGraphGetRootNodes = cuGraphGetRootNodes;
    /// Returns the dependencies of a graph with their edge data.
    fn cudaGraphGetEdges_v2 = cuGraphGetEdges_v2;
    /// Returns the nodes that a node depends on, with edge data.
    fn cudaGraphNodeGetDependencies_v2 = cuGraphNodeGetDependencies_v2;
    /// Returns the nodes that depend on a node, with edge data.
    fn cudaGraphNodeGetDependentNodes_v2 = cuGraphNodeGetDependentNodes_v2;
    /// Adds dependencies with edge data.
    fn cudaGraphAddDependencies_v2 = cuGraphAddDependencies_v2;
    /// Removes dependencies with edge data.
    fn cudaGraphRemoveDependencies_v2 = cuGraphRemoveDependencies_v2;
    /// Writes a graph to a file in the language of `dot`.
    fn cudaGraphDebugDotPrint = cuGraphDebugDotPrint;
    /// Makes an executable graph.
    fn cudaGraphInstantiate = cuGraphInstantiateWithFlags;
    /// Makes an executable graph.
    fn cudaGraphInstantiateWithFlags = cuGraphInstantiateWithFlags;
    /// Returns the flags with which an executable graph was made.
    fn cudaGraphExecGetFlags = cuGraphExecGetFlags;
    fn cudaGraphExecDestroy = cuGraphExecDestroy;
    /// Updates the nodes of an executable graph with those of a graph of the same structure.
    fn cudaGraphExecUpdate = cuGraphExecUpdate_v2;
    /// Sets whether an executable graph runs a node.
    fn cudaGraphNodeSetEnabled = cuGraphNodeSetEnabled;
    /// Returns whether an executable graph runs a node.
    fn cudaGraphNodeGetEnabled = cuGraphNodeGetEnabled;
    /// Creates a reference-counted object of the program that graphs can keep alive.
    fn cudaUserObjectCreate = cuUserObjectCreate;
    /// Adds references to a user object.
    fn cudaUserObjectRetain = cuUserObjectRetain;
    /// Removes references to a user object.
    fn cudaUserObjectRelease = cuUserObjectRelease;
    /// Makes a graph own references to a user object.
    fn cudaGraphRetainUserObject = cuGraphRetainUserObject;
    /// Removes a graph's references to a user object.
    fn cudaGraphReleaseUserObject = cuGraphReleaseUserObject;
}

/// Returns the edge data and the count for the functions below. In version 12 there is only a
/// count.
const fn with_edges<T>(
    edges_or_count: *mut T,
    count: *mut usize,
    major: c_int,
) -> (*mut T, *mut usize) {
    if major > 12 { (edges_or_count, count) } else { (std::ptr::null_mut(), edges_or_count.cast()) }
}

/// Like [`with_edges`], for a count that is passed by value.
fn given_edges(edges_or_count: usize, count: usize) -> (*const CUgraphEdgeData, usize) {
    if major() > 12 {
        (std::ptr::with_exposed_provenance(edges_or_count), count)
    } else {
        (std::ptr::null(), edges_or_count)
    }
}

entry! {
    /// Returns the dependencies of a graph.
    fn cudaGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphGetEdges_v2(graph, from, to, edges, count)
    }
    /// Returns the nodes that a node depends on.
    fn cudaGraphNodeGetDependencies(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
    }
    /// Returns the nodes that depend on a node.
    fn cudaGraphNodeGetDependentNodes(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    ) {
        let (edges, count) = with_edges(edges, count, major());
        current()?.driver.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)
    }
    fn cudaGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges_or_count: usize, count: usize,
    ) {
        let (edges, count) = given_edges(edges_or_count, count);
        current()?.driver.cuGraphAddDependencies_v2(graph, from, to, edges, count)
    }
    fn cudaGraphRemoveDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges_or_count: usize, count: usize,
    ) {
        let (edges, count) = given_edges(edges_or_count, count);
        current()?.driver.cuGraphRemoveDependencies_v2(graph, from, to, edges, count)
    }
    /// Makes an executable graph.
    fn cudaGraphInstantiateWithParams(
        exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        current()?.driver.cuGraphInstantiateWithParams(exec, graph, params)
    }
    /// Makes an executable graph, for programs in which each thread has its own default stream.
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
    /// Returns memory that the graphs of a device do not use.
    fn cudaDeviceGraphMemTrim(ordinal: c_int) {
        current()?.driver.cuDeviceGraphMemTrim(device(ordinal)?.handle)
    }
    /// Returns how much memory the graphs of a device use or reserve.
    fn cudaDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuDeviceGetGraphMemAttribute(device(ordinal)?.handle, attribute, value)
    }
    /// Resets the peak values of a device's graph memory.
    fn cudaDeviceSetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: *mut c_void) {
        current()?.driver.cuDeviceSetGraphMemAttribute(device(ordinal)?.handle, attribute, value)
    }
}

on_stream! {
    fn cudaGraphLaunch, cudaGraphLaunch_ptsz(exec: CUgraphExec; stream) {
        current()?.driver.cuGraphLaunch(exec, stream)
    }
    /// Does the work in advance that the first launch would otherwise do.
    fn cudaGraphUpload, cudaGraphUpload_ptsz(exec: CUgraphExec; stream) {
        current()?.driver.cuGraphUpload(exec, stream)
    }
}
