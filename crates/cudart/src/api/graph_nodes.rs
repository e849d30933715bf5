//! Nodes of graphs, and what they do.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUevent, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUgraphNodeParams,
};
use penstock_cuda_sys::runtime::{Memcpy3DParms, copy_kind};
use penstock_cuda_sys::runtime_codes as code;

use super::graphs::driver;
use super::symbols::place;
use crate::core::context::{Current, current};
use crate::core::copy::device_pointer;
use crate::core::graph::{any, copy, copy_back, kernel, kernel_of, linear};
use crate::edge::{RtError, RtResult, entry, major};

type Nodes = *const CUgraphNode;

driver! {
    /// What a node fills.
    fn cudaGraphMemsetNodeGetParams = cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS);
    /// Sets what a node fills.
    fn cudaGraphMemsetNodeSetParams = cuGraphMemsetNodeSetParams(
        node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS,
    );
    /// Adds a function of the program.
    fn cudaGraphAddHostNode = cuGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize, params: *const CUDA_HOST_NODE_PARAMS,
    );
    /// What a node's function is.
    fn cudaGraphHostNodeGetParams = cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS);
    /// Sets a node's function.
    fn cudaGraphHostNodeSetParams = cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
    /// Sets a function in what was made ready.
    fn cudaGraphExecHostNodeSetParams = cuGraphExecHostNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS,
    );
    /// Adds a graph.
    fn cudaGraphAddChildGraphNode = cuGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize, child: CUgraph,
    );
    /// The graph in a node.
    fn cudaGraphChildGraphNodeGetGraph = cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    /// Sets a graph in what was made ready.
    fn cudaGraphExecChildGraphNodeSetParams = cuGraphExecChildGraphNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, child: CUgraph,
    );
    /// Adds a node that does nothing.
    fn cudaGraphAddEmptyNode = cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize);
    /// Adds the record of an event.
    fn cudaGraphAddEventRecordNode = cuGraphAddEventRecordNode(
        node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize, event: CUevent,
    );
    /// The event of a node.
    fn cudaGraphEventRecordNodeGetEvent = cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    /// Sets the event of a node.
    fn cudaGraphEventRecordNodeSetEvent = cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
    /// Sets an event in what was made ready.
    fn cudaGraphExecEventRecordNodeSetEvent = cuGraphExecEventRecordNodeSetEvent(
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    );
    /// Adds a wait for an event.
    fn cudaGraphAddEventWaitNode = cuGraphAddEventWaitNode(
        node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize, event: CUevent,
    );
    /// The event of a node.
    fn cudaGraphEventWaitNodeGetEvent = cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    /// Sets the event of a node.
    fn cudaGraphEventWaitNodeSetEvent = cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
    /// Sets an event in what was made ready.
    fn cudaGraphExecEventWaitNodeSetEvent = cuGraphExecEventWaitNodeSetEvent(
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    );
    /// Adds memory.
    fn cudaGraphAddMemAllocNode = cuGraphAddMemAllocNode(
        node: *mut CUgraphNode, graph: CUgraph, before: Nodes, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    /// A node's memory.
    fn cudaGraphMemAllocNodeGetParams = cuGraphMemAllocNodeGetParams(
        node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    /// Sets what a kernel is to have besides.
    fn cudaGraphKernelNodeSetAttribute = cuGraphKernelNodeSetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *const c_void,
    );
    /// What a kernel is to have besides.
    fn cudaGraphKernelNodeGetAttribute = cuGraphKernelNodeGetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *mut c_void,
    );
    /// Has a kernel have what another has.
    fn cudaGraphKernelNodeCopyAttributes = cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
}

/// Where a new node goes.
#[derive(Clone, Copy)]
struct New {
    node: *mut CUgraphNode,
    graph: CUgraph,
    before: Nodes,
    count: usize,
}

impl New {
    /// # Safety
    /// The places are the program's.
    unsafe fn copy(self, current: Current, copy: &CUDA_MEMCPY3D) -> RtResult {
        let Self { node, graph, before, count } = self;
        // SAFETY: as the caller promises.
        unsafe {
            current.driver.cuGraphAddMemcpyNode(node, graph, before, count, copy, current.context)
        }
    }
}

/// # Safety
/// The node is the driver's.
unsafe fn set_copy(current: Current, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> RtResult {
    // SAFETY: as the caller promises.
    unsafe { current.driver.cuGraphMemcpyNodeSetParams(node, copy) }
}

/// # Safety
/// Both are the driver's.
unsafe fn set_copy_in(
    current: Current,
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: &CUDA_MEMCPY3D,
) -> RtResult {
    // SAFETY: as the caller promises.
    unsafe { current.driver.cuGraphExecMemcpyNodeSetParams(exec, node, copy, current.context) }
}

/// A copy into a variable of the device.
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

/// A copy from a variable of the device.
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
    /// Adds a launch.
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
    /// What a node launches.
    fn cudaGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        if params.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        params.write_unaligned(kernel_of(current()?, node)?);
        Ok(())
    }
    /// Sets what a node launches.
    fn cudaGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        let current = current()?;
        let params = kernel(current, params)?;
        current.driver.cuGraphKernelNodeSetParams(node, &raw const params)
    }
    /// Sets a launch in what was made ready.
    fn cudaGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        let current = current()?;
        let params = kernel(current, params)?;
        current.driver.cuGraphExecKernelNodeSetParams(exec, node, &raw const params)
    }
    /// Adds a copy.
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
    /// Adds a copy of bytes.
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
    /// Adds a copy into a variable of the device.
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
    /// Adds a copy from a variable of the device.
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
    /// What a node copies.
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
    /// Sets what a node copies.
    fn cudaGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const Memcpy3DParms) {
        let current = current()?;
        set_copy(current, node, &copy(current, params)?)
    }
    /// Sets what a node copies: bytes.
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
    /// Sets what a node copies: bytes into a variable of the device.
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
    /// Sets what a node copies: bytes from a variable of the device.
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
    /// Sets a copy in what was made ready.
    fn cudaGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const Memcpy3DParms) {
        let current = current()?;
        set_copy_in(current, exec, node, &copy(current, params)?)
    }
    /// Sets a copy in what was made ready: bytes.
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
    /// Sets a copy in what was made ready: bytes into a variable of the device.
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
    /// Sets a copy in what was made ready: bytes from a variable of the device.
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
    /// Adds a fill.
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
    /// Sets a fill in what was made ready.
    fn cudaGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS,
    ) {
        let current = current()?;
        current.driver.cuGraphExecMemsetNodeSetParams(exec, node, params, current.context)
    }
    /// Adds the end of memory.
    fn cudaGraphAddMemFreeNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        before: Nodes,
        count: usize,
        memory: *mut c_void,
    ) {
        current()?.driver.cuGraphAddMemFreeNode(node, graph, before, count, device_pointer(memory))
    }
    /// The memory that a node ends.
    fn cudaGraphMemFreeNodeGetParams(node: CUgraphNode, memory: *mut c_void) {
        current()?.driver.cuGraphMemFreeNodeGetParams(node, memory.cast())
    }
    /// Adds a node of any kind. In version 12 this is told nothing of edges.
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
    /// Adds a node of any kind.
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
    /// Sets what a node of any kind does.
    fn cudaGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let current = current()?;
        let mut params = any(current, params)?;
        current.driver.cuGraphNodeSetParams(node, &raw mut params)
    }
    /// Sets what a node of any kind does in what was made ready.
    fn cudaGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let current = current()?;
        let mut params = any(current, params)?;
        current.driver.cuGraphExecNodeSetParams(exec, node, &raw mut params)
    }
}

/// # Safety
/// The places are the program's.
unsafe fn add_any(
    new: New,
    edges: *const CUgraphEdgeData,
    params: *mut CUgraphNodeParams,
) -> RtResult {
    use penstock_cuda_sys::driver::CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    let current = current()?;
    // SAFETY: as the caller promises.
    let mut described = unsafe { any(current, params) }?;
    let New { node, graph, before, count } = new;
    // SAFETY: as the caller promises.
    unsafe {
        current.driver.cuGraphAddNode(node, graph, before, edges, count, &raw mut described)
    }?;
    if described.kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
        // With the address.
        // SAFETY: not null: it was read.
        unsafe { params.write_unaligned(described) };
    }
    Ok(())
}
