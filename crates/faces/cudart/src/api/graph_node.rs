//! Nodes of graphs and their parameters.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_cuda_sys::runtime::{Memcpy3DParms, copy_kind};
use penstock_cuda_sys::runtime_codes as code;

use super::pass_on::pass_on;
use super::symbol::place;
use crate::core::context::{Current, current};
use crate::core::copy::device_pointer;
use crate::core::graph::{any, copy, copy_back, kernel, kernel_of, linear};
use crate::edge::{RtError, RtResult, entry, major};

type Nodes = *const CUgraphNode;

pass_on! {
    /// Returns the fill of a node.
    fn cudaGraphMemsetNodeGetParams = cuGraphMemsetNodeGetParams;
    /// Sets the fill of a node.
    fn cudaGraphMemsetNodeSetParams = cuGraphMemsetNodeSetParams;
    /// Adds a node that calls a function of the program.
    fn cudaGraphAddHostNode = cuGraphAddHostNode;
    /// Returns the function of a host node.
    fn cudaGraphHostNodeGetParams = cuGraphHostNodeGetParams;
    /// Sets the function of a host node.
    fn cudaGraphHostNodeSetParams = cuGraphHostNodeSetParams;
    /// Sets the function of a host node in an executable graph.
    fn cudaGraphExecHostNodeSetParams = cuGraphExecHostNodeSetParams;
    /// Adds a node that runs a graph.
    fn cudaGraphAddChildGraphNode = cuGraphAddChildGraphNode;
    /// Returns the graph that a node runs.
    fn cudaGraphChildGraphNodeGetGraph = cuGraphChildGraphNodeGetGraph;
    /// Sets the graph of a child node in an executable graph.
    fn cudaGraphExecChildGraphNodeSetParams = cuGraphExecChildGraphNodeSetParams;
    /// Adds a node that does nothing.
    fn cudaGraphAddEmptyNode = cuGraphAddEmptyNode;
    /// Adds a node that records an event.
    fn cudaGraphAddEventRecordNode = cuGraphAddEventRecordNode;
    fn cudaGraphEventRecordNodeGetEvent = cuGraphEventRecordNodeGetEvent;
    fn cudaGraphEventRecordNodeSetEvent = cuGraphEventRecordNodeSetEvent;
    /// Sets the event that a node of an executable graph records.
    fn cudaGraphExecEventRecordNodeSetEvent = cuGraphExecEventRecordNodeSetEvent;
    /// Adds a node that waits for an event.
    fn cudaGraphAddEventWaitNode = cuGraphAddEventWaitNode;
    fn cudaGraphEventWaitNodeGetEvent = cuGraphEventWaitNodeGetEvent;
    fn cudaGraphEventWaitNodeSetEvent = cuGraphEventWaitNodeSetEvent;
    /// Sets the event that a node of an executable graph waits for.
    fn cudaGraphExecEventWaitNodeSetEvent = cuGraphExecEventWaitNodeSetEvent;
    /// Adds a node that allocates memory.
    fn cudaGraphAddMemAllocNode = cuGraphAddMemAllocNode;
    /// Returns the description of a node's memory.
    fn cudaGraphMemAllocNodeGetParams = cuGraphMemAllocNodeGetParams;
    /// Sets an attribute of a kernel node's launch.
    fn cudaGraphKernelNodeSetAttribute = cuGraphKernelNodeSetAttribute;
    /// Returns an attribute of a kernel node's launch.
    fn cudaGraphKernelNodeGetAttribute = cuGraphKernelNodeGetAttribute;
    /// Copies all attributes of one kernel node to another.
    fn cudaGraphKernelNodeCopyAttributes = cuGraphKernelNodeCopyAttributes;
}

/// Describes a copy into a device variable.
fn to_symbol(
    current: Current,
    symbol: *const c_void,
    source: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> RtResult<CUDA_MEMCPY3D> {
    if !matches!(kind, copy_kind::HOST_TO_DEVICE | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    linear(current, place(current, symbol, offset, bytes)?, source, bytes, kind)
}

/// Describes a copy from a device variable.
fn from_symbol(
    current: Current,
    destination: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> RtResult<CUDA_MEMCPY3D> {
    if !matches!(kind, copy_kind::DEVICE_TO_HOST | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    linear(current, destination, place(current, symbol, offset, bytes)?, bytes, kind)
}

/// Defines the functions for nodes that copy: one that adds a node, one that sets the copy of a
/// node, and one that sets it in an executable graph. They describe the copy in the same way.
macro_rules! copy_nodes {
    ($(fn $add:ident, $set:ident, $set_in:ident |$current:ident|
        ($($parameter:ident: $type:ty),* $(,)?) $describe:expr;)+) => {
        entry! {$(
            /// Adds a node with this copy.
            fn $add(
                node: *mut CUgraphNode,
                graph: CUgraph,
                before: *const CUgraphNode,
                count: usize,
                $($parameter: $type),*
            ) {
                let $current = current()?;
                let (copy, home) = ($describe?, $current.context);
                $current.driver.cuGraphAddMemcpyNode(node, graph, before, count, &raw const copy, home)
            }
            /// Sets the copy of a node.
            fn $set(node: CUgraphNode, $($parameter: $type),*) {
                let $current = current()?;
                let copy = $describe?;
                $current.driver.cuGraphMemcpyNodeSetParams(node, &raw const copy)
            }
            /// Sets the copy of a node in an executable graph.
            fn $set_in(exec: CUgraphExec, node: CUgraphNode, $($parameter: $type),*) {
                let $current = current()?;
                let (copy, home) = ($describe?, $current.context);
                $current.driver.cuGraphExecMemcpyNodeSetParams(exec, node, &raw const copy, home)
            }
        )+}
    };
}

copy_nodes! {
    fn cudaGraphAddMemcpyNode, cudaGraphMemcpyNodeSetParams, cudaGraphExecMemcpyNodeSetParams
        |current| (params: *const Memcpy3DParms) copy(current, params);
    fn cudaGraphAddMemcpyNode1D, cudaGraphMemcpyNodeSetParams1D, cudaGraphExecMemcpyNodeSetParams1D
        |current| (destination: *mut c_void, source: *const c_void, bytes: usize, kind: c_int)
        linear(current, destination, source, bytes, kind);
    fn cudaGraphAddMemcpyNodeToSymbol, cudaGraphMemcpyNodeSetParamsToSymbol,
        cudaGraphExecMemcpyNodeSetParamsToSymbol |current| (
            symbol: *const c_void, source: *const c_void, bytes: usize, offset: usize, kind: c_int,
        ) to_symbol(current, symbol, source, bytes, offset, kind);
    fn cudaGraphAddMemcpyNodeFromSymbol, cudaGraphMemcpyNodeSetParamsFromSymbol,
        cudaGraphExecMemcpyNodeSetParamsFromSymbol |current| (
            destination: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int,
        ) from_symbol(current, destination, symbol, bytes, offset, kind);
}

entry! {
    /// Adds a node that launches a kernel.
    fn cudaGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        let current = current()?;
        let params = kernel(current, params)?;
        current.driver.cuGraphAddKernelNode(node, graph, before, count, &raw const params)
    }
    /// Returns the launch of a node.
    fn cudaGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        if params.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        params.write_unaligned(kernel_of(current()?, node)?);
        Ok(())
    }
    /// Sets the launch of a node.
    fn cudaGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        let current = current()?;
        let params = kernel(current, params)?;
        current.driver.cuGraphKernelNodeSetParams(node, &raw const params)
    }
    /// Sets the launch of a node in an executable graph.
    fn cudaGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        let current = current()?;
        let params = kernel(current, params)?;
        current.driver.cuGraphExecKernelNodeSetParams(exec, node, &raw const params)
    }
    /// Returns the copy of a node.
    fn cudaGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut Memcpy3DParms) {
        let current = current()?;
        if params.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut copy: CUDA_MEMCPY3D = std::mem::zeroed();
        current.driver.cuGraphMemcpyNodeGetParams(node, &raw mut copy)?;
        params.write_unaligned(copy_back(current, &copy)?);
        Ok(())
    }
    /// Adds a node that fills memory.
    fn cudaGraphAddMemsetNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS,
    ) {
        let current = current()?;
        current.driver.cuGraphAddMemsetNode(node, graph, before, count, params, current.context)
    }
    /// Sets the fill of a node in an executable graph.
    fn cudaGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS,
    ) {
        let current = current()?;
        current.driver.cuGraphExecMemsetNodeSetParams(exec, node, params, current.context)
    }
    /// Adds a node that frees memory.
    fn cudaGraphAddMemFreeNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        memory: *mut c_void,
    ) {
        current()?.driver.cuGraphAddMemFreeNode(node, graph, before, count, device_pointer(memory))
    }
    /// Returns the memory that a node frees.
    fn cudaGraphMemFreeNodeGetParams(node: CUgraphNode, memory: *mut c_void) {
        current()?.driver.cuGraphMemFreeNodeGetParams(node, memory.cast())
    }
    /// Adds a node of any kind. In version 12, the function has no parameter for edges.
    fn cudaGraphAddNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        edges_or_count: usize,
        count_or_params: usize,
        params: *mut CUgraphNodeParams,
    ) {
        let (edges, count, params) = if major() > 12 {
            (std::ptr::with_exposed_provenance(edges_or_count), count_or_params, params)
        } else {
            let params = std::ptr::with_exposed_provenance_mut(count_or_params);
            (std::ptr::null(), edges_or_count, params)
        };
        add_any(New { node, graph, before, count }, edges, params)
    }
    /// Adds a node of any kind, with edge data.
    fn cudaGraphAddNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        edges: *const CUgraphEdgeData,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) {
        add_any(New { node, graph, before, count }, edges, params)
    }
    /// Sets the parameters of a node of any kind.
    fn cudaGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let current = current()?;
        let mut params = any(current, params)?;
        current.driver.cuGraphNodeSetParams(node, &raw mut params)
    }
    /// Sets the parameters of a node of any kind in an executable graph.
    fn cudaGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let current = current()?;
        let mut params = any(current, params)?;
        current.driver.cuGraphExecNodeSetParams(exec, node, &raw mut params)
    }
}

/// A new node: where its handle is stored, its graph, and the `count` nodes that it depends on.
struct New {
    node: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
}

/// # Safety
/// The pointers are valid as CUDA requires.
unsafe fn add_any(
    new: New,
    edges: *const CUgraphEdgeData,
    params: *mut CUgraphNodeParams,
) -> RtResult {
    let current = current()?;
    // SAFETY: the caller upholds the contract of this function.
    let mut described = unsafe { any(current, params) }?;
    let New { node, graph, before, count } = new;
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        current.driver.cuGraphAddNode_v2(node, graph, before, edges, count, &raw mut described)
    }?;
    if described.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
        // The driver has filled in the address.
        // SAFETY: `params` was read, so it is not null. The caller guarantees that it is writable.
        unsafe { params.write_unaligned(described) };
    }
    Ok(())
}
