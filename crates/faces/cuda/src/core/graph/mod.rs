//! Graphs: work that is described once and launched many times.
//!
//! Graphs exist only in the client. A node holds the same description of its work that a call gives
//! to a stream ([`work::Work`]), whether the program added or captured it ([`capture`]). A launch
//! uses a copy of the graph and a plan of it ([`exec`], [`plan`]).

pub(crate) mod capture;
pub(crate) mod dot;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod node;
mod plan;
mod run;
pub(crate) mod update;
pub(crate) mod user;
pub(crate) mod work;

use std::fmt;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::edge::{CuResult, Object, forget, has_handle, new_number, publish, require};
use node::Node;
use user::UserObjects;
use work::Work;

pub(crate) struct Graph {
    number: u64,
    /// Whether a node of another graph owns this graph.
    is_child: bool,
    /// Number of the graph that it was copied from; 0 if none.
    original: u64,
    state: Lock<GraphState>,
}

#[derive(Default)]
struct GraphState {
    /// In the order in which they were made, so sorted by number.
    nodes: Vec<NodeEntry>,
    users: UserObjects,
}

#[derive(Clone)]
struct NodeEntry {
    node: Arc<Node>,
    /// Numbers of the nodes that this node follows.
    before: Vec<u64>,
}

has_handle!(Graph: CUgraph_st, CUDA_ERROR_INVALID_VALUE);

/// Nodes, and for each the indices of the nodes that it follows.
pub(crate) struct GraphShape {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) before: Vec<Vec<usize>>,
}

impl GraphState {
    fn find(&self, number: u64) -> CuResult<usize> {
        let index = self.nodes.binary_search_by_key(&number, |entry| entry.node.number());
        index.map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }

    fn entry(&mut self, number: u64) -> CuResult<&mut NodeEntry> {
        let index = self.find(number)?;
        self.nodes.get_mut(index).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn has_memory(&self) -> bool {
        self.nodes.iter().any(|entry| entry.node.work().has_memory())
    }
}

impl Graph {
    pub(crate) fn create() -> Arc<Self> {
        Self::new(false, 0)
    }

    fn new(is_child: bool, original: u64) -> Arc<Self> {
        let graph =
            Arc::new(Self { number: new_number(), is_child, original, state: Lock::default() });
        publish(&graph);
        graph
    }

    /// Implements `cuGraphDestroy`. Executable graphs made from it stay valid.
    pub(crate) fn destroy(&self) -> CuResult {
        require(!self.is_child, CUDA_ERROR_INVALID_VALUE)?;
        self.end()
    }

    /// Invalidates the handles of the graph and its nodes.
    fn end(&self) -> CuResult {
        forget(self).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let state = std::mem::take(&mut *self.state.lock());
        for entry in &state.nodes {
            entry.node.end();
        }
        Ok(())
    }

    /// Adds a node that follows other nodes of this graph.
    pub(crate) fn add(self: &Arc<Self>, work: Work, before: &[u64]) -> CuResult<Arc<Node>> {
        let mut state = self.state.lock();
        let mut known = FxHashSet::default();
        for number in before {
            state.find(*number)?;
            // "... dependencies may not have any duplicate entries."
            require(known.insert(*number), CUDA_ERROR_INVALID_VALUE)?;
        }
        // Made under the lock, so that the numbers in the list ascend.
        let node = Node::new(self, work, 0);
        state.nodes.push(NodeEntry { node: node.clone(), before: before.to_vec() });
        Ok(node)
    }

    pub(crate) fn remove(&self, node: &Node) -> CuResult {
        let mut state = self.state.lock();
        // "Nodes and edges of the graph cannot be deleted" if it has memory nodes.
        require(!state.has_memory(), CUDA_ERROR_NOT_SUPPORTED)?;
        let index = state.find(node.number())?;
        state.nodes.remove(index);
        for entry in &mut state.nodes {
            entry.before.retain(|number| *number != node.number());
        }
        drop(state);
        node.end();
        Ok(())
    }

    /// Implements `cuGraphAddDependencies`: adds all edges or none.
    pub(crate) fn connect(&self, edges: &[(u64, u64)]) -> CuResult {
        let mut state = self.state.lock();
        let mut known = FxHashSet::default();
        for (from, to) in edges {
            let (_, index) = (state.find(*from)?, state.find(*to)?);
            let is_there = state.nodes.get(index).is_none_or(|entry| entry.before.contains(from));
            require(
                from != to && !is_there && known.insert((*from, *to)),
                CUDA_ERROR_INVALID_VALUE,
            )?;
        }
        edges.iter().try_for_each(|(from, to)| {
            state.entry(*to)?.before.push(*from);
            Ok(())
        })
    }

    /// Implements `cuGraphRemoveDependencies`: removes all edges or none.
    pub(crate) fn disconnect(&self, edges: &[(u64, u64)]) -> CuResult {
        let mut state = self.state.lock();
        require(edges.is_empty() || !state.has_memory(), CUDA_ERROR_NOT_SUPPORTED)?;
        for (from, to) in edges {
            require(state.entry(*to)?.before.contains(from), CUDA_ERROR_INVALID_VALUE)?;
        }
        edges.iter().try_for_each(|(from, to)| {
            state.entry(*to)?.before.retain(|number| number != from);
            Ok(())
        })
    }

    /// Returns the numbers of its nodes.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        self.state.lock().nodes.iter().map(|entry| entry.node.number()).collect()
    }

    /// Returns the nodes that follow no other node.
    pub(crate) fn roots(&self) -> Vec<u64> {
        let state = self.state.lock();
        let roots = state.nodes.iter().filter(|entry| entry.before.is_empty());
        roots.map(|entry| entry.node.number()).collect()
    }

    /// Returns its edges: numbers of the earlier and the later node.
    pub(crate) fn edges(&self) -> Vec<(u64, u64)> {
        let state = self.state.lock();
        let of = |entry: &NodeEntry| {
            let to = entry.node.number();
            entry.before.iter().map(move |from| (*from, to)).collect::<Vec<_>>()
        };
        state.nodes.iter().flat_map(of).collect()
    }

    /// Returns the nodes that a node follows.
    pub(crate) fn before(&self, node: &Node) -> CuResult<Vec<u64>> {
        Ok(self.state.lock().entry(node.number())?.before.clone())
    }

    /// Returns the nodes that follow a node.
    pub(crate) fn after(&self, node: &Node) -> Vec<u64> {
        let state = self.state.lock();
        let after = state.nodes.iter().filter(|entry| entry.before.contains(&node.number()));
        after.map(|entry| entry.node.number()).collect()
    }

    /// Returns its nodes and edges.
    pub(crate) fn shape(&self) -> GraphShape {
        let state = self.state.lock();
        let index = |number: &u64| state.find(*number).ok();
        let before = |entry: &NodeEntry| entry.before.iter().filter_map(index).collect();
        GraphShape {
            nodes: state.nodes.iter().map(|entry| entry.node.clone()).collect(),
            before: state.nodes.iter().map(before).collect(),
        }
    }

    pub(crate) fn copy(&self) -> CuResult<Arc<Self>> {
        // "The graph cannot be cloned" if it has memory nodes.
        require(!self.has_memory(), CUDA_ERROR_NOT_SUPPORTED)?;
        Ok(self.duplicate(false))
    }

    /// Copies the graph and its child graphs. `is_child`: a node will own the copy.
    pub(crate) fn duplicate(&self, is_child: bool) -> Arc<Self> {
        let graph = Self::new(is_child, self.number);
        // Copied without the lock, because the copy of a child graph locks that graph.
        let (entries, users) = {
            let state = self.state.lock();
            (state.nodes.clone(), state.users.clone())
        };
        let mut state = graph.state.lock();
        let mut numbers = FxHashMap::default();
        for entry in &entries {
            let node = Node::new(&graph, entry.node.work().duplicate(), entry.node.number());
            node.copy_attributes(&entry.node);
            numbers.insert(entry.node.number(), node.number());
            state.nodes.push(NodeEntry { node, before: Vec::new() });
        }
        for (entry, made) in entries.iter().zip(&mut state.nodes) {
            made.before =
                entry.before.iter().filter_map(|number| numbers.get(number).copied()).collect();
        }
        state.users = users;
        drop(state);
        graph
    }

    pub(crate) fn find_copy_of(&self, node: &Node) -> CuResult<Arc<Node>> {
        // "hClonedGraph must have been cloned from hOriginalGraph via cuGraphClone."
        require(
            self.original != 0 && node.graph()?.number == self.original,
            CUDA_ERROR_INVALID_VALUE,
        )?;
        let state = self.state.lock();
        let found = state.nodes.iter().find(|entry| entry.node.original() == node.number());
        found.map(|entry| entry.node.clone()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns whether the graph or a child graph allocates or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.state.lock().has_memory()
    }

    /// Runs `work` with the user objects that the graph holds.
    pub(crate) fn with_users<T>(&self, work: impl FnOnce(&mut UserObjects) -> T) -> T {
        work(&mut self.state.lock().users)
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("number", &self.number).finish_non_exhaustive()
    }
}
