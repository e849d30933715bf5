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

/// A new node: where its handle is stored, its graph, and the `count` nodes that it depends on.
#[derive(Clone, Copy)]
struct New {
    node: *mut CUgraphNode,
    graph: CUgraph,
    before: Nodes,
    count: usize,
}

impl New {
    /// # Safety
    /// The pointers are valid as CUDA requires.
    unsafe fn copy(self, current: Current, copy: &CUDA_MEMCPY3D) -> RtResult {
        let Self { node, graph, before, count } = self;
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            current.driver.cuGraphAddMemcpyNode(node, graph, before, count, copy, current.context)
        }
    }
}

/// # Safety
/// `node` is a node of the driver.
unsafe fn set_copy(current: Current, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> RtResult {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuGraphMemcpyNodeSetParams(node, copy) }
}

/// # Safety
/// `exec` and `node` are handles of the driver.
unsafe fn set_copy_in(
    current: Current,
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: &CUDA_MEMCPY3D,
) -> RtResult {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuGraphExecMemcpyNodeSetParams(exec, node, copy, current.context) }
}

/// Describes a copy into a device variable. The tuple is `(bytes, offset)`.
fn to_symbol(
    current: Current,
    symbol: *const c_void,
    source: *const c_void,
    (bytes, offset): (usize, usize),
    kind: c_int,
) -> RtResult<CUDA_MEMCPY3D> {
    if !matches!(kind, copy_kind::HOST_TO_DEVICE | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    linear(current, place(current, symbol, offset, bytes)?, source, bytes, kind)
}

/// Describes a copy from a device variable. The tuple is `(bytes, offset)`.
fn from_symbol(
    current: Current,
    destination: *mut c_void,
    symbol: *const c_void,
    (bytes, offset): (usize, usize),
    kind: c_int,
) -> RtResult<CUDA_MEMCPY3D> {
    if !matches!(kind, copy_kind::DEVICE_TO_HOST | copy_kind::DEVICE_TO_DEVICE | copy_kind::DEFAULT)
    {
        return Err(RtError(code::INVALID_MEMCPY_DIRECTION));
    }
    linear(current, destination, place(current, symbol, offset, bytes)?, bytes, kind)
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
    /// Adds a node that copies a box.
    fn cudaGraphAddMemcpyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        params: *const Memcpy3DParms,
    ) {
        let current = current()?;
        New { node, graph, before, count }.copy(current, &copy(current, params)?)
    }
    /// Adds a node that copies consecutive bytes.
    fn cudaGraphAddMemcpyNode1D(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        destination: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: c_int,
    ) {
        let current = current()?;
        let copy = linear(current, destination, source, bytes, kind)?;
        New { node, graph, before, count }.copy(current, &copy)
    }
    /// Adds a node that copies into a device variable.
    fn cudaGraphAddMemcpyNodeToSymbol(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        let copy = to_symbol(current, symbol, source, (bytes, offset), kind)?;
        New { node, graph, before, count }.copy(current, &copy)
    }
    /// Adds a node that copies from a device variable.
    fn cudaGraphAddMemcpyNodeFromSymbol(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        destination: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        let copy = from_symbol(current, destination, symbol, (bytes, offset), kind)?;
        New { node, graph, before, count }.copy(current, &copy)
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
    /// Sets the copy of a node to a box.
    fn cudaGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const Memcpy3DParms) {
        let current = current()?;
        set_copy(current, node, &copy(current, params)?)
    }
    /// Sets the copy of a node to consecutive bytes.
    fn cudaGraphMemcpyNodeSetParams1D(
        node: CUgraphNode,
        destination: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy(current, node, &linear(current, destination, source, bytes, kind)?)
    }
    /// Sets the copy of a node to one into a device variable.
    fn cudaGraphMemcpyNodeSetParamsToSymbol(
        node: CUgraphNode,
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy(current, node, &to_symbol(current, symbol, source, (bytes, offset), kind)?)
    }
    /// Sets the copy of a node to one from a device variable.
    fn cudaGraphMemcpyNodeSetParamsFromSymbol(
        node: CUgraphNode,
        destination: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy(current, node, &from_symbol(current, destination, symbol, (bytes, offset), kind)?)
    }
    /// Sets the copy of a node in an executable graph to a box.
    fn cudaGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const Memcpy3DParms) {
        let current = current()?;
        set_copy_in(current, exec, node, &copy(current, params)?)
    }
    /// Sets the copy of a node in an executable graph to consecutive bytes.
    fn cudaGraphExecMemcpyNodeSetParams1D(
        exec: CUgraphExec,
        node: CUgraphNode,
        destination: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy_in(current, exec, node, &linear(current, destination, source, bytes, kind)?)
    }
    /// Sets the copy of a node in an executable graph to one into a device variable.
    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
        exec: CUgraphExec,
        node: CUgraphNode,
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy_in(current, exec, node, &to_symbol(current, symbol, source, (bytes, offset), kind)?)
    }
    /// Sets the copy of a node in an executable graph to one from a device variable.
    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
        exec: CUgraphExec,
        node: CUgraphNode,
        destination: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        let current = current()?;
        set_copy_in(current, exec, node, &from_symbol(current, destination, symbol, (bytes, offset), kind)?)
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

/// # Safety
/// The pointers are valid as CUDA requires.
unsafe fn add_any(
    new: New,
    edges: *const CUgraphEdgeData,
    params: *mut CUgraphNodeParams,
) -> RtResult {
    use penstock_cuda_sys::driver::CU_GRAPH_NODE_TYPE_MEM_ALLOC;
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
