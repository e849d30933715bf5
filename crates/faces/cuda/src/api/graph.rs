//! Creation and destruction of graphs, their nodes and dependencies.

use std::ffi::{c_char, c_uint, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use crate::core::graph::node::Node;
use crate::core::graph::user::UserObject;
use crate::core::graph::work::Work;
use crate::core::graph::{Graph, dot};
use crate::core::platform;
use crate::edge::{CuResult, HostCall, Object as _, array, cu_entry, load, require, store, text};

/// Returns the handles of nodes.
pub(super) fn handles(numbers: &[u64]) -> impl Iterator<Item = CUgraphNode> {
    numbers.iter().map(|number| without_provenance_mut(usize::try_from(*number).unwrap_or(0)))
}

/// Returns the numbers of nodes. Fails if a handle is not valid.
///
/// # Safety
/// `nodes` is null or has `count` elements.
pub(super) unsafe fn numbers(nodes: *const CUgraphNode, count: usize) -> CuResult<Vec<u64>> {
    // SAFETY: the caller promises that `nodes` is null or has `count` elements.
    let nodes = unsafe { array(nodes, count) }?;
    nodes.iter().map(|node| Node::borrow(*node).map(|node| node.number())).collect()
}

/// Checks that no edge has ports. Ports let a kernel start before another has ended. That is not
/// served, and ignoring ports would be wrong.
///
/// # Safety
/// `edges` is null or has `count` elements.
pub(super) unsafe fn edges_are_plain(edges: *const CUgraphEdgeData, count: usize) -> CuResult {
    if edges.is_null() {
        return Ok(());
    }
    // SAFETY: the caller promises that `edges` is null or has `count` elements.
    let edges = unsafe { array(edges, count) }?;
    require(edges.iter().all(|edge| edge.reserved == [0; 5]), CUDA_ERROR_INVALID_VALUE)?;
    let is_plain = |edge: &CUgraphEdgeData| *edge == CUgraphEdgeData::default();
    require(edges.iter().all(is_plain), CUDA_ERROR_NOT_SUPPORTED)
}

/// Adds a node, and stores its handle.
///
/// # Safety
/// `result` is null or writable; `dependencies` is null or has `count` elements.
pub(super) unsafe fn add(
    result: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    work: impl FnOnce() -> CuResult<Work>,
) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let graph = Graph::borrow(graph)?;
    // SAFETY: the caller promises that `dependencies` is null or has `count` elements.
    let before = unsafe { numbers(dependencies, count) }?;
    let node = graph.add(work()?, &before)?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, node.raw()) };
    Ok(())
}

/// Stores `values` in a list of the program with `room` elements. "If nodes is NULL, the number is
/// returned"; "if numNodes is higher than the actual number of nodes, the remaining entries ...
/// will be set to NULL".
///
/// # Safety
/// `list` is null or has room for `room` elements.
unsafe fn fill<T: Copy>(list: *mut T, room: usize, values: &[T], rest: T) {
    if list.is_null() {
        return;
    }
    for at in 0..room {
        // SAFETY: the caller promises room for `room` elements.
        unsafe { store(list.add(at), values.get(at).copied().unwrap_or(rest)) };
    }
}

/// # Safety
/// `count` is null, or readable and writable; `list` is null or has room for `*count` handles.
unsafe fn give(found: &[u64], list: *mut CUgraphNode, count: *mut usize) -> CuResult {
    // SAFETY: the caller promises that `count` is null or readable.
    let room = unsafe { load(count.cast_const()) }?;
    let nodes: Vec<CUgraphNode> = handles(found).collect();
    // SAFETY: the caller promises that `list` is null or has room for `room` handles.
    unsafe { fill(list, room, &nodes, null_mut()) };
    let told = if list.is_null() { nodes.len() } else { nodes.len().min(room) };
    // SAFETY: the caller promises that `count` is null or writable.
    unsafe { store(count, told) };
    Ok(())
}

/// As [`give`], with the data of each edge.
///
/// # Safety
/// As [`give`]; the same holds for `edges` as for `list`.
unsafe fn give_with(
    found: &[u64],
    list: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CuResult {
    // "edgeData may only be non-NULL if the list is".
    require(edges.is_null() || !list.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller promises that `count` is null or readable.
    let room = unsafe { load(count.cast_const()) }?;
    // SAFETY: the caller promises that `edges` is null or has room for `room` elements.
    unsafe { fill(edges, room, &[], CUgraphEdgeData::default()) };
    // SAFETY: the caller promises what `give` demands.
    unsafe { give(found, list, count) }
}

/// # Safety
/// `count` is null, or readable and writable; each list is null or has room for `*count` elements.
unsafe fn give_edges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CuResult {
    require(!count.is_null() && from.is_null() == to.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let (before, after): (Vec<u64>, Vec<u64>) = Graph::borrow(graph)?.edges().into_iter().unzip();
    // SAFETY: the caller promises that `count` is null or readable.
    let mut room = unsafe { load(count.cast_const()) }?;
    // SAFETY: the caller promises what `give_with` demands.
    unsafe { give_with(&before, from, edges, &raw mut room) }?;
    // SAFETY: the caller promises what `give` demands.
    unsafe { give(&after, to, count) }
}

/// # Safety
/// Each list is null or has `count` elements.
unsafe fn pairs(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> CuResult<Vec<(u64, u64)>> {
    // SAFETY: the caller promises that `edges` is null or has `count` elements.
    unsafe { edges_are_plain(edges, count) }?;
    // SAFETY: the caller promises that `from` and `to` are null or have `count` elements.
    let (from, to) = unsafe { (numbers(from, count)?, numbers(to, count)?) };
    Ok(from.into_iter().zip(to).collect())
}

cu_entry! {
    fn cuGraphCreate(result: *mut CUgraph, flags: c_uint) {
        require(!result.is_null() && flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        platform::devices()?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, Graph::create().raw()) };
        Ok(())
    }
    fn cuGraphDestroy(graph: CUgraph) {
        Graph::borrow(graph)?.destroy()
    }
    fn cuGraphClone(result: *mut CUgraph, graph: CUgraph) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let copy = Graph::borrow(graph)?.copy()?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, copy.raw()) };
        Ok(())
    }
    fn cuGraphNodeFindInClone(result: *mut CUgraphNode, node: CUgraphNode, graph: CUgraph) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let found = Graph::borrow(graph)?.find_copy_of(&*Node::borrow(node)?)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, found.raw()) };
        Ok(())
    }
    fn cuGraphDestroyNode(node: CUgraphNode) {
        let node = Node::borrow(node)?;
        node.graph()?.remove(&node)
    }
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) {
        require(!kind.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let node = Node::borrow(node)?;
        // SAFETY: the program promises that `kind` is null or writable.
        unsafe { store(kind, node.work().kind()) };
        Ok(())
    }
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        // SAFETY: the program promises what `give` demands.
        unsafe { give(&Graph::borrow(graph)?.nodes(), nodes, count) }
    }
    fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        // SAFETY: the program promises what `give` demands.
        unsafe { give(&Graph::borrow(graph)?.roots(), nodes, count) }
    }
    fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) {
        // SAFETY: the program promises what `give_edges` demands.
        unsafe { give_edges(graph, from, to, null_mut(), count) }
    }
    fn cuGraphGetEdges_v2(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        // SAFETY: the program promises what `give_edges` demands.
        unsafe { give_edges(graph, from, to, edges, count) }
    }
    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises what `give` demands.
        unsafe { give(&node.graph()?.before(&node)?, nodes, count) }
    }
    fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises what `give_with` demands.
        unsafe { give_with(&node.graph()?.before(&node)?, nodes, edges, count) }
    }
    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises what `give` demands.
        unsafe { give(&node.graph()?.after(&node), nodes, count) }
    }
    fn cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        let node = Node::borrow(node)?;
        // SAFETY: the program promises what `give_with` demands.
        unsafe { give_with(&node.graph()?.after(&node), nodes, edges, count) }
    }
    fn cuGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) {
        // SAFETY: the program promises what `pairs` demands.
        Graph::borrow(graph)?.connect(&unsafe { pairs(from, to, null(), count) }?)
    }
    fn cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
    ) {
        // SAFETY: the program promises what `pairs` demands.
        Graph::borrow(graph)?.connect(&unsafe { pairs(from, to, edges, count) }?)
    }
    fn cuGraphRemoveDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) {
        // SAFETY: the program promises what `pairs` demands.
        Graph::borrow(graph)?.disconnect(&unsafe { pairs(from, to, null(), count) }?)
    }
    fn cuGraphRemoveDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
    ) {
        // SAFETY: the program promises what `pairs` demands.
        Graph::borrow(graph)?.disconnect(&unsafe { pairs(from, to, edges, count) }?)
    }
    /// Writes the graph to a file for `dot`.
    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) {
        let graph = Graph::borrow(graph)?;
        // SAFETY: the program promises that `path` is null or a string.
        let path = unsafe { text(path) }?;
        // Any other flag asks for a part of the details. The file then has all of them.
        let written = dot::text(&graph, flags != 0);
        let path = path.to_str().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        std::fs::write(path, written).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    }
    fn cuUserObjectCreate(
        result: *mut CUuserObject,
        object: *mut c_void,
        destroy: CUhostFn,
        count: c_uint,
        flags: c_uint,
    ) {
        // "... is required, because the destructor will not be ... synchronised".
        let is_flagged = flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        require(!result.is_null() && is_flagged, CUDA_ERROR_INVALID_VALUE)?;
        let destroy = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        platform::devices()?;
        // SAFETY: the program promises what `HostCall::new` demands.
        let made = UserObject::create(unsafe { HostCall::new(destroy, object) }, count)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, made.raw()) };
        Ok(())
    }
    fn cuUserObjectRetain(object: CUuserObject, count: c_uint) {
        UserObject::borrow(object)?.retain(count)
    }
    fn cuUserObjectRelease(object: CUuserObject, count: c_uint) {
        UserObject::borrow(object)?.release(count)
    }
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) {
        require(flags <= CU_GRAPH_USER_OBJECT_MOVE, CUDA_ERROR_INVALID_VALUE)?;
        let (graph, object): (Arc<Graph>, _) = (Graph::borrow(graph)?, UserObject::borrow(object)?);
        graph.with_users(|users| users.add(&object, count))?;
        if flags == CU_GRAPH_USER_OBJECT_MOVE { object.release(count) } else { Ok(()) }
    }
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) {
        let released = Graph::borrow(graph)?.with_users(|users| users.remove(object.addr() as u64, count))?;
        // Dropped here, without the lock of a graph.
        drop(released);
        Ok(())
    }
}
