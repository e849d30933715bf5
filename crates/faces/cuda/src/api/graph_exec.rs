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
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, DefaultStream, Object as _, cu_entry, cu_stream_entry, load, require, store,
};

/// # Safety
/// `result` is null or writable.
unsafe fn instantiate(result: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let exec = Exec::create(&*Graph::borrow(graph)?, flags)?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, exec.raw()) };
    Ok(())
}

/// The form with a place for the invalid node and for a message.
///
/// # Safety
/// Each place is null or writable, and `log` has room for `size` bytes.
unsafe fn instantiate_and_say(
    result: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> CuResult {
    // SAFETY: the caller promises that `node` is null or writable. No error here has a single node
    // as its cause.
    unsafe { store(node, null_mut()) };
    if size > 0 {
        // An empty message.
        // SAFETY: the caller promises that `log` is null or writable.
        unsafe { store(log, 0) };
    }
    // SAFETY: the caller promises what `instantiate` demands.
    unsafe { instantiate(result, graph, 0) }
}

/// # Safety
/// Each place is null or writable.
unsafe fn instantiate_with(
    result: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    default: DefaultStream,
) -> CuResult {
    // SAFETY: the caller promises that `params` is null or readable.
    let mut given = unsafe { load(params.cast_const()) }?;
    let upload = given.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD != 0;
    if upload {
        Stream::resolve(given.hUploadStream, default)?;
    }
    // SAFETY: the caller promises what `instantiate` demands.
    let made = unsafe { instantiate(result, graph, given.flags) };
    given.hErrNode_out = null_mut();
    given.result_out = match made {
        Ok(()) => CUDA_GRAPH_INSTANTIATE_SUCCESS,
        Err(CUDA_ERROR_INVALID_VALUE) => CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
        Err(_) => CUDA_GRAPH_INSTANTIATE_ERROR,
    };
    // SAFETY: the caller promises that `params` is null or writable.
    unsafe { store(params, given) };
    made?;
    if upload {
        // SAFETY: the caller promises that `result` is null or readable, and `instantiate` has
        // stored a handle there.
        Exec::borrow(unsafe { load(result.cast_const()) }?)?.upload()?;
    }
    Ok(())
}

cu_entry! {
    fn cuGraphInstantiate, cuGraphInstantiate_v2(
        result: *mut CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        log: *mut c_char,
        size: usize,
    ) {
        // SAFETY: the program promises what `instantiate_and_say` demands.
        unsafe { instantiate_and_say(result, graph, node, log, size) }
    }
    fn cuGraphInstantiateWithFlags(result: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        // "CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: only supported by cuGraphInstantiateWithParams".
        require(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD == 0, CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises what `instantiate` demands.
        unsafe { instantiate(result, graph, flags) }
    }
    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) {
        require(!flags.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let exec = Exec::borrow(exec)?;
        // SAFETY: the program promises that `flags` is null or writable. "Flags used for uploading
        // are not returned".
        unsafe { store(flags, exec.flags & !CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) };
        Ok(())
    }
    fn cuGraphExecDestroy(exec: CUgraphExec) {
        Exec::borrow(exec)?.destroy()
    }
    fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        // SAFETY: the program promises that `params` is null or readable.
        let first = unsafe { load(params) }?;
        let params = CUDA_KERNEL_NODE_PARAMS { first, kern: null_mut(), ctx: null_mut() };
        // SAFETY: the program promises what `kernel` demands.
        let work = unsafe { kernel(&params) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        // SAFETY: the program promises what `kernel` and `load` demand.
        let work = unsafe { kernel(&load(params)?) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) {
        // SAFETY: the program promises that `params` is null or readable.
        let work = copy(&unsafe { load(params) }?, home(context)?)?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) {
        // SAFETY: the program promises that `params` is null or readable.
        let work = fill(&unsafe { load(params) }?, home(context)?)?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    fn cuGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) {
        // SAFETY: the program promises what `host` and `load` demand.
        let work = unsafe { host(&load(params)?) }?;
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, work)
    }
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph) {
        Exec::borrow(exec)?.set_child(&*Node::borrow(node)?, &*Graph::borrow(graph)?)
    }
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, Work::Record(Event::borrow(event)?))
    }
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        Exec::borrow(exec)?.set(&*Node::borrow(node)?, Work::Wait(Event::borrow(event)?))
    }
    /// Serves all kinds of nodes whose parameters can be set.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) {
        let (exec, node) = (Exec::borrow(exec)?, Node::borrow(node)?);
        // SAFETY: the program promises that `params` is null or readable.
        let given = unsafe { load(params.cast_const()) }?;
        require(given.kind == node.work().kind(), CUDA_ERROR_INVALID_VALUE)?;
        if given.kind == CU_GRAPH_NODE_TYPE_GRAPH {
            // SAFETY: a description of this kind begins with the handle.
            let graph = unsafe { load(given.params.as_ptr().cast::<CUgraph>()) }?;
            return exec.set_child(&node, &*Graph::borrow(graph)?);
        }
        require(can_be_set(given.kind), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises what `any` demands.
        exec.set(&node, unsafe { any(params) }?)
    }
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) {
        require(enabled <= 1, CUDA_ERROR_INVALID_VALUE)?;
        Exec::borrow(exec)?.set_enabled(&*Node::borrow(node)?, enabled == 1)
    }
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) {
        require(!enabled.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let is_enabled = Exec::borrow(exec)?.is_enabled(&*Node::borrow(node)?)?;
        // SAFETY: the program promises that `enabled` is null or writable.
        unsafe { store(enabled, is_enabled.into()) };
        Ok(())
    }
    fn cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        result: *mut c_uint,
    ) {
        let (info, updated) = update_exec(exec, graph);
        // SAFETY: the program promises that `node` is null or writable.
        unsafe { store(node, info.errorNode) };
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, info.result) };
        updated
    }
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo) {
        let (info, updated) = update_exec(exec, graph);
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, info) };
        updated
    }
}

/// Updates an executable graph. Returns what the interface tells of the update, and its code.
fn update_exec(exec: CUgraphExec, graph: CUgraph) -> (CUgraphExecUpdateResultInfo, CuResult) {
    let mut info = CUgraphExecUpdateResultInfo {
        result: CU_GRAPH_EXEC_UPDATE_ERROR,
        errorNode: null_mut(),
        errorFromNode: null_mut(),
    };
    let handle = |number: u64| handles(&[number]).next().unwrap_or(null_mut());
    let updated = match (Exec::borrow(exec), Graph::borrow(graph)) {
        (Ok(exec), Ok(graph)) => exec.update(&graph).map_err(|mismatch| {
            info.result = mismatch.result;
            (info.errorNode, info.errorFromNode) = (handle(mismatch.node), handle(mismatch.from));
            mismatch.code
        }),
        (Err(code), _) | (_, Err(code)) => Err(code),
    };
    if updated.is_ok() {
        info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
    (info, updated)
}

cu_stream_entry! {
    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz |default| (
        result: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        // SAFETY: the program promises what `instantiate_with` demands.
        unsafe { instantiate_with(result, graph, params, default) }
    }
    fn cuGraphUpload / cuGraphUpload_ptsz |default| (exec: CUgraphExec, stream: CUstream) {
        let exec = Exec::borrow(exec)?;
        Stream::resolve(stream, default)?;
        exec.upload()
    }
    fn cuGraphLaunch / cuGraphLaunch_ptsz |default| (exec: CUgraphExec, stream: CUstream) {
        let exec = Exec::borrow(exec)?;
        let (context, stream) = Stream::resolve(stream, default)?;
        exec.launch(&context, &stream)
    }
}
