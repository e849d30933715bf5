//! Graphs that can be launched.

use std::ffi::{c_char, c_uint};
use std::ptr::null_mut;

use penstock_cuda_sys::driver::*;

use super::graph::handles;
use super::graph_node::{any, can_be_set, copy, fill, home, host, kernel};
use crate::core::event::Event;
use crate::core::graph::Graph;
use crate::core::graph::exec::Exec;
use crate::core::graph::node::Node;
use crate::core::graph::work::Work;
use crate::core::stream::{Default, Stream};
use crate::edge::{CuResult, Object as _, cu_entry, cu_stream_entry, load, require, store};

/// # Safety
/// `result` is a place for a handle.
unsafe fn instantiate(result: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let exec = Exec::create(&*Graph::borrow(graph)?, flags)?;
    // SAFETY: the caller's promise.
    unsafe { store(result, exec.raw()) };
    Ok(())
}

/// The form that tells more: which node is wrong, and in words.
///
/// # Safety
/// The places are `NULL` or may be written.
unsafe fn instantiate_and_say(
    result: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    (log, size): (*mut c_char, usize),
) -> CuResult {
    // No node alone is wrong in what can be wrong here.
    // SAFETY: the caller's promise.
    unsafe { store(node, null_mut()) };
    if size > 0 {
        // Nothing is said.
        // SAFETY: the caller's promise.
        unsafe { store(log, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { instantiate(result, graph, 0) }
}

/// # Safety
/// The places are `NULL` or may be written.
unsafe fn instantiate_with(
    result: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    default: Default,
) -> CuResult {
    // SAFETY: the caller's promise.
    let mut given = unsafe { load(params.cast_const()) }?;
    let upload = given.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD != 0;
    if upload {
        Stream::resolve(given.hUploadStream, default)?;
    }
    // SAFETY: the caller's promise.
    let made = unsafe { instantiate(result, graph, given.flags) };
    given.hErrNode_out = null_mut();
    given.result_out = match made {
        Ok(()) => CUDA_GRAPH_INSTANTIATE_SUCCESS,
        Err(CUDA_ERROR_INVALID_VALUE) => CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
        Err(_) => CUDA_GRAPH_INSTANTIATE_ERROR,
    };
    // SAFETY: the caller's promise.
    unsafe { store(params, given) };
    made?;
    if upload {
        // SAFETY: the caller's promise; it was stored just now.
        Exec::borrow(unsafe { load(result.cast_const()) }?)?.upload()?;
    }
    Ok(())
}

cu_entry! {
    /// `cuGraphInstantiate`.
    fn cuGraphInstantiate(
        result: *mut CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        log: *mut c_char,
        size: usize,
    ) {
        // SAFETY: the program's places.
        unsafe { instantiate_and_say(result, graph, node, (log, size)) }
    }
    /// `cuGraphInstantiate`.
    fn cuGraphInstantiate_v2(
        result: *mut CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        log: *mut c_char,
        size: usize,
    ) {
        // SAFETY: the program's places.
        unsafe { instantiate_and_say(result, graph, node, (log, size)) }
    }
    /// `cuGraphInstantiate`.
    fn cuGraphInstantiateWithFlags(result: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        // "CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: only supported by cuGraphInstantiateWithParams".
        require(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD == 0, CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program's place.
        unsafe { instantiate(result, graph, flags) }
    }
    /// `cuGraphExecGetFlags`.
    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) {
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let exec = Exec::borrow(exec)?;
        // SAFETY: a place for the number. "Flags used for uploading are not returned".
        unsafe { store(flags, exec.flags & !CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) };
        Ok(())
    }
    /// `cuGraphExecDestroy`.
    fn cuGraphExecDestroy(exec: CUgraphExec) {
        Exec::borrow(exec)?.destroy()
    }
    /// `cuGraphExecKernelNodeSetParams`.
    fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        // SAFETY: the program's description.
        let first = unsafe { load(params) }?;
        let params = CUDA_KERNEL_NODE_PARAMS { first, kern: null_mut(), ctx: null_mut() };
        // SAFETY: the program's description.
        let work = unsafe { kernel(&params) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    /// `cuGraphExecKernelNodeSetParams`.
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        // SAFETY: the program's description.
        let work = unsafe { kernel(&load(params)?) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    /// `cuGraphExecMemcpyNodeSetParams`.
    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) {
        // SAFETY: the program's description.
        let work = copy(&unsafe { load(params) }?, home(context)?)?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    /// `cuGraphExecMemsetNodeSetParams`.
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) {
        // SAFETY: the program's description.
        let work = fill(&unsafe { load(params) }?, home(context)?)?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    /// `cuGraphExecHostNodeSetParams`.
    fn cuGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) {
        // SAFETY: the program's description.
        let work = unsafe { host(&load(params)?) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    /// `cuGraphExecChildGraphNodeSetParams`.
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph) {
        Exec::borrow(exec)?.set_child(&*Node::borrow(node)?, &*Graph::borrow(graph)?)
    }
    /// `cuGraphExecEventRecordNodeSetEvent`.
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, Work::Record(Event::borrow(event)?))
    }
    /// `cuGraphExecEventWaitNodeSetEvent`.
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, Work::Wait(Event::borrow(event)?))
    }
    /// `cuGraphExecNodeSetParams`: any kind whose parameters can be set.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let (exec, node) = (Exec::borrow(exec)?, Node::borrow(node)?);
        // SAFETY: the program's description.
        let given = unsafe { load(params.cast_const()) }?;
        require(given.kind == node.work().kind(), CUDA_ERROR_INVALID_VALUE)?;
        if given.kind == CU_GRAPH_NODE_TYPE_GRAPH {
            // SAFETY: of this kind it holds the handle first.
            let graph = unsafe { load(given.params.as_ptr().cast::<CUgraph>()) }?;
            return exec.set_child(&node, &*Graph::borrow(graph)?);
        }
        require(can_be_set(given.kind), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program's description.
        exec.set(&node, unsafe { any(params) }?)
    }
    /// `cuGraphNodeSetEnabled`.
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) {
        require(enabled <= 1, CUDA_ERROR_INVALID_VALUE)?;
        Exec::borrow(exec)?.set_enabled(&*Node::borrow(node)?, enabled == 1)
    }
    /// `cuGraphNodeGetEnabled`.
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) {
        require(!enabled.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let is_enabled = Exec::borrow(exec)?.is_enabled(&*Node::borrow(node)?)?;
        // SAFETY: a place for the number.
        unsafe { store(enabled, is_enabled.into()) };
        Ok(())
    }
    /// `cuGraphExecUpdate`.
    fn cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        result: *mut c_uint,
    ) {
        let mut info = CUgraphExecUpdateResultInfo {
            result: CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: null_mut(),
            errorFromNode: null_mut(),
        };
        let updated = update_exec(exec, graph, &mut info);
        // SAFETY: a place for the handle.
        unsafe { store(node, info.errorNode) };
        // SAFETY: a place for the number.
        unsafe { store(result, info.result) };
        updated
    }
    /// `cuGraphExecUpdate`.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo) {
        let mut info = CUgraphExecUpdateResultInfo {
            result: CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: null_mut(),
            errorFromNode: null_mut(),
        };
        let updated = update_exec(exec, graph, &mut info);
        // SAFETY: a place for what is told.
        unsafe { store(result, info) };
        updated
    }
}

fn update_exec(
    exec: CUgraphExec,
    graph: CUgraph,
    info: &mut CUgraphExecUpdateResultInfo,
) -> CuResult {
    let (exec, graph) = (Exec::borrow(exec)?, Graph::borrow(graph)?);
    let handle = |number: u64| handles(&[number]).next().unwrap_or(null_mut());
    match exec.update(&graph) {
        Ok(()) => {
            info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
            Ok(())
        }
        Err(mismatch) => {
            info.result = mismatch.result;
            (info.errorNode, info.errorFromNode) = (handle(mismatch.node), handle(mismatch.from));
            Err(mismatch.code)
        }
    }
}

cu_stream_entry! {
    /// `cuGraphInstantiateWithParams`.
    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz |default| (
        result: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        // SAFETY: the program's places.
        unsafe { instantiate_with(result, graph, params, default) }
    }
    /// `cuGraphUpload`.
    fn cuGraphUpload / cuGraphUpload_ptsz |default| (exec: CUgraphExec, stream: CUstream) {
        let exec = Exec::borrow(exec)?;
        Stream::resolve(stream, default)?;
        exec.upload()
    }
    /// `cuGraphLaunch`.
    fn cuGraphLaunch / cuGraphLaunch_ptsz |default| (exec: CUgraphExec, stream: CUstream) {
        let exec = Exec::borrow(exec)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        exec.launch(&context, &stream)
    }
}
