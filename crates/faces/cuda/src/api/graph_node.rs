//! Nodes of graphs: adding them, and their parameters.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Weak};

use penstock_cuda_sys::driver::*;
use penstock_process::notice;

use super::graph::{add, edges_are_plain};
use super::graph_memory::allocation;
use super::{launch, row};
use crate::core::context::Context;
use crate::core::event::Event;
use crate::core::graph::Graph;
use crate::core::graph::node::Node;
use crate::core::graph::work::Work;
use crate::core::launch::DescribedLaunch;
use crate::core::library::{self, Kernel};
use crate::core::memset::Memset;
use crate::core::shape::LaunchShape;
use crate::edge::{CuResult, HostCall, Object as _, cu_entry, load, require, store};

/// # Safety
/// The parameters are those of the function.
pub(super) unsafe fn kernel(params: &CUDA_KERNEL_NODE_PARAMS) -> CuResult<Work> {
    let first = &params.first;
    let function = if first.func.is_null() {
        let context =
            if params.ctx.is_null() { Context::current()? } else { Context::borrow(params.ctx)? };
        Kernel::borrow(params.kern)?.function_in(&context)?
    } else {
        library::function(first.func)?
    };
    let shape = LaunchShape {
        grid: [first.gridDimX, first.gridDimY, first.gridDimZ],
        block: [first.blockDimX, first.blockDimY, first.blockDimZ],
        dynamic: first.sharedMemBytes,
    };
    // SAFETY: the caller promises the parameters of the function.
    let given = unsafe { launch::params(first.kernelParams, first.extra) }?;
    // SAFETY: the caller promises what `DescribedLaunch::new` demands.
    unsafe { DescribedLaunch::new(function, shape, &given) }.map(Work::Kernel)
}

fn kernel_params(node: CUgraphNode) -> CuResult<CUDA_KERNEL_NODE_PARAMS> {
    let Work::Kernel(launch) = Node::borrow(node)?.work() else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let (grid, block) = (launch.shape.grid, launch.shape.block);
    let first = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: launch.function.raw(),
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: launch.shape.dynamic,
        // "... owned by the node": valid until its parameters are set anew or it is destroyed.
        kernelParams: launch.addresses().as_ptr().cast_mut().cast::<*mut c_void>(),
        extra: std::ptr::null_mut(),
    };
    let ctx =
        launch.function.loaded.context().map_or(std::ptr::null_mut(), |context| context.raw());
    Ok(CUDA_KERNEL_NODE_PARAMS { first, kern: std::ptr::null_mut(), ctx })
}

/// Converts the first version of the description to the second one.
fn wide(first: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS { first, kern: std::ptr::null_mut(), ctx: std::ptr::null_mut() }
}

/// Returns the given context, or the current one if it is null.
pub(super) fn home(context: CUcontext) -> CuResult<Weak<Context>> {
    let context = if context.is_null() { Context::current()? } else { Context::borrow(context)? };
    Ok(Arc::downgrade(&context))
}

pub(super) fn copy(params: &CUDA_MEMCPY3D, home: Weak<Context>) -> CuResult<Work> {
    let copy = row::described(params)?;
    copy.check()?;
    Ok(Work::Copy(home, copy))
}

pub(super) fn fill(params: &CUDA_MEMSET_NODE_PARAMS, home: Weak<Context>) -> CuResult<Work> {
    let fill = Memset {
        to: params.dst,
        pitch: params.pitch as u64,
        value: params.value,
        element: params.elementSize,
        width: params.width as u64,
        height: params.height as u64,
    };
    fill.check()?;
    Ok(Work::Fill(home, fill))
}

/// # Safety
/// The function may be called with its data in any thread.
pub(super) unsafe fn host(params: &CUDA_HOST_NODE_PARAMS) -> CuResult<Work> {
    let function = params.function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller promises what `HostCall::new` demands.
    Ok(Work::Host(unsafe { HostCall::new(function, params.userData) }))
}

/// Makes the work of a child graph node: a copy of the given graph.
fn child(graph: CUgraph) -> CuResult<Work> {
    let graph = Graph::borrow(graph)?;
    // "Graphs containing memory allocation or memory free nodes must set the ownership to be moved
    // to the parent". That is not served.
    require(!graph.has_memory(), CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(Work::Child(graph.duplicate(true)))
}

/// Returns the context of a node that copies or fills.
fn home_of(node: &Node) -> CuResult<Weak<Context>> {
    match node.work() {
        Work::Copy(home, _) | Work::Fill(home, _) => Ok(home),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Returns the parameters in a node's description.
///
/// # Safety
/// The description has parameters of this type.
unsafe fn part<T: Copy>(params: &CUgraphNodeParams) -> CuResult<T> {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>()) };
    // SAFETY: the caller promises parameters of this type, and the field has room for the largest
    // type.
    unsafe { load(params.params.as_ptr().cast::<T>()) }
}

/// Makes the work of a description of any kind. For an allocation, stores the address in the
/// description.
///
/// # Safety
/// `params` is null or leads to a valid description.
pub(super) unsafe fn any(params: *mut CUgraphNodeParams) -> CuResult<Work> {
    // SAFETY: the caller promises that `params` is null or readable.
    let given = unsafe { load(params.cast_const()) }?;
    require(given.reserved0 == [0; 3] && given.reserved2 == 0, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: in each arm the kind of the node tells the type of its parameters.
    unsafe {
        match given.kind {
            CU_GRAPH_NODE_TYPE_KERNEL => kernel(&part(&given)?),
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                let copied: CUDA_MEMCPY_NODE_PARAMS = part(&given)?;
                require(copied.flags == 0 && copied.reserved == 0, CUDA_ERROR_INVALID_VALUE)?;
                copy(&copied.copyParams, home(copied.copyCtx)?)
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                let (filled, context): (CUDA_MEMSET_NODE_PARAMS, CUcontext) =
                    (part(&given)?, part::<([u64; 5], CUcontext)>(&given)?.1);
                fill(&filled, home(context)?)
            }
            CU_GRAPH_NODE_TYPE_HOST => host(&part(&given)?),
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let given: CUDA_CHILD_GRAPH_NODE_PARAMS = part(&given)?;
                // Moving the graph is not served, see `child`.
                require(given.ownership == 0, CUDA_ERROR_NOT_SUPPORTED)?;
                child(given.graph)
            }
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(Work::Empty),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Event::borrow(part(&given)?).map(Work::Wait),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => Event::borrow(part(&given)?).map(Work::Record),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => allocation((&raw mut (*params).params).cast()),
            CU_GRAPH_NODE_TYPE_MEM_FREE => super::graph_memory::release(part(&given)?),
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                notice::once_about(
                    "conditional",
                    format_args!("conditional nodes of graphs are not served"),
                );
                Err(CUDA_ERROR_NOT_SUPPORTED)
            }
            // Semaphores of other interfaces, and batched operations on memory.
            8 | 9 | 12 => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// # Safety
/// `event` is null or writable.
unsafe fn event_of(node: CUgraphNode, event: *mut CUevent, kind: u32) -> CuResult {
    require(!event.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    match Node::borrow(node)?.work() {
        Work::Wait(known) | Work::Record(known) if Node::borrow(node)?.work().kind() == kind => {
            // SAFETY: the caller promises that `event` is null or writable.
            unsafe { store(event, known.raw()) };
            Ok(())
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cu_entry! {
    fn cuGraphAddKernelNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        // SAFETY: the program promises what `add`, `kernel` and `load` demand.
        unsafe { add(result, graph, dependencies, count, || kernel(&wide(load(params)?))) }
    }
    fn cuGraphAddKernelNode_v2(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        // SAFETY: the program promises what `add`, `kernel` and `load` demand.
        unsafe { add(result, graph, dependencies, count, || kernel(&load(params)?)) }
    }
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let known = kernel_params(node)?;
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, known.first) };
        Ok(())
    }
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let known = kernel_params(node)?;
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, known) };
        Ok(())
    }
    fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        // SAFETY: the program promises what `kernel` and `load` demand.
        let work = unsafe { kernel(&wide(load(params)?)) }?;
        Node::borrow(node)?.set(work)
    }
    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) {
        // SAFETY: the program promises what `kernel` and `load` demand.
        let work = unsafe { kernel(&load(params)?) }?;
        Node::borrow(node)?.set(work)
    }
    fn cuGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        attribute: c_uint,
        value: *mut CUlaunchAttributeValue,
    ) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let known = Node::borrow(node)?.attribute(attribute)?;
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, known) };
        Ok(())
    }
    /// Rejects attributes that would change the results, as launches do.
    fn cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: c_uint,
        value: *const CUlaunchAttributeValue,
    ) {
        // SAFETY: the program promises that `value` is null or readable.
        let value = unsafe { load(value) }?;
        let node = Node::borrow(node)?;
        if let Work::Kernel(known) = node.work() {
            launch::check_attribute(attribute, &value, known.shape.grid)?;
        }
        node.set_attribute(attribute, value)
    }
    fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) {
        let (to, from) = (Node::borrow(to)?, Node::borrow(from)?);
        let is_kernel = |node: &Node| node.work().kind() == CU_GRAPH_NODE_TYPE_KERNEL;
        require(is_kernel(&to) && is_kernel(&from), CUDA_ERROR_INVALID_VALUE)?;
        to.copy_attributes(&from);
        Ok(())
    }
    fn cuGraphAddMemcpyNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) {
        // SAFETY: the program promises what `add` and `load` demand.
        unsafe { add(result, graph, dependencies, count, || copy(&load(params)?, home(context)?)) }
    }
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMCPY3D) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Copy(_, copy) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, row::description(&copy)) };
        Ok(())
    }
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises that `params` is null or readable.
        node.set(copy(&unsafe { load(params) }?, home_of(&node)?)?)
    }
    fn cuGraphAddMemsetNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) {
        // SAFETY: the program promises what `add` and `load` demand.
        unsafe { add(result, graph, dependencies, count, || fill(&load(params)?, home(context)?)) }
    }
    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Fill(_, fill) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let known = CUDA_MEMSET_NODE_PARAMS {
            dst: fill.to,
            pitch: size(fill.pitch),
            value: fill.value,
            elementSize: fill.element,
            width: size(fill.width),
            height: size(fill.height),
        };
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, known) };
        Ok(())
    }
    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises that `params` is null or readable.
        node.set(fill(&unsafe { load(params) }?, home_of(&node)?)?)
    }
    fn cuGraphAddHostNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) {
        // SAFETY: the program promises what `add`, `host` and `load` demand.
        unsafe { add(result, graph, dependencies, count, || host(&load(params)?)) }
    }
    fn cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Host(call) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let (function, data) = call.parts();
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, CUDA_HOST_NODE_PARAMS { function: Some(function), userData: data }) };
        Ok(())
    }
    fn cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) {
        // SAFETY: the program promises what `host` and `load` demand.
        Node::borrow(node)?.set(unsafe { host(&load(params)?) }?)
    }
    fn cuGraphAddChildGraphNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        inner: CUgraph,
    ) {
        // SAFETY: the program promises what `add` demands.
        unsafe { add(result, graph, dependencies, count, || child(inner)) }
    }
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) {
        require(!graph.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Child(inner) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        // SAFETY: the program promises that `graph` is null or writable.
        unsafe { store(graph, inner.raw()) };
        Ok(())
    }
    fn cuGraphAddEmptyNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) {
        // SAFETY: the program promises what `add` demands.
        unsafe { add(result, graph, dependencies, count, || Ok(Work::Empty)) }
    }
    fn cuGraphAddEventRecordNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) {
        // SAFETY: the program promises what `add` demands.
        unsafe { add(result, graph, dependencies, count, || Event::borrow(event).map(Work::Record)) }
    }
    fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        // SAFETY: the program promises what `event_of` demands.
        unsafe { event_of(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD) }
    }
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) {
        Node::borrow(node)?.set(Work::Record(Event::borrow(event)?))
    }
    fn cuGraphAddEventWaitNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) {
        // SAFETY: the program promises what `add` demands.
        unsafe { add(result, graph, dependencies, count, || Event::borrow(event).map(Work::Wait)) }
    }
    fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        // SAFETY: the program promises what `event_of` demands.
        unsafe { event_of(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT) }
    }
    fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) {
        Node::borrow(node)?.set(Work::Wait(Event::borrow(event)?))
    }
    /// Serves all kinds of nodes.
    fn cuGraphAddNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) {
        // SAFETY: the program promises what `add` and `any` demand.
        unsafe { add(result, graph, dependencies, count, || any(params)) }
    }
    /// Serves all kinds of nodes.
    fn cuGraphAddNode_v2(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) {
        // SAFETY: the program promises that `edges` is null or has `count` elements.
        unsafe { edges_are_plain(edges, count) }?;
        // SAFETY: the program promises what `add` and `any` demand.
        unsafe { add(result, graph, dependencies, count, || any(params)) }
    }
    /// Serves all kinds of nodes whose parameters can be set.
    fn cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) {
        // SAFETY: the program promises that `params` is null or readable.
        let kind = unsafe { load(params.cast_const().cast::<c_int>()) }?;
        let node = Node::borrow(node)?;
        require(kind.cast_unsigned() == node.work().kind() && can_be_set(kind.cast_unsigned()), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises what `any` demands.
        node.set(unsafe { any(params) }?)
    }
}

/// Returns whether the parameters of this kind can be set. Those of child graphs and memory cannot.
pub(super) fn can_be_set(kind: u32) -> bool {
    !matches!(
        kind,
        CU_GRAPH_NODE_TYPE_GRAPH | CU_GRAPH_NODE_TYPE_MEM_ALLOC | CU_GRAPH_NODE_TYPE_MEM_FREE
    )
}
