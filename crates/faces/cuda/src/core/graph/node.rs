//! Nodes of graphs.

use std::fmt;
use std::sync::{Arc, Weak};

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::Graph;
use super::work::Work;
use crate::edge::{CuResult, forget, has_handle, new_number, publish, require};

pub(crate) struct Node {
    number: u64,
    graph: Weak<Graph>,
    /// Number of the node that it was copied from; 0 if none.
    original: u64,
    work: Lock<Work>,
    /// Key: `CUkernelNodeAttrID`. Attributes are hints about caches and scheduling. They are stored
    /// only so that the program can read them.
    attributes: Lock<Vec<(u32, [u32; 16])>>,
}

has_handle!(Node: CUgraphNode_st, CUDA_ERROR_INVALID_VALUE);

impl Node {
    pub(super) fn new(graph: &Arc<Graph>, work: Work, original: u64) -> Arc<Self> {
        let node = Arc::new(Self {
            number: new_number(),
            graph: Arc::downgrade(graph),
            original,
            work: Lock::new(work),
            attributes: Lock::default(),
        });
        publish(&node);
        node
    }

    /// Invalidates the handle, and those of a child graph.
    pub(super) fn end(&self) {
        _ = forget(self);
        if let Work::Child(graph) = self.work() {
            _ = graph.end();
        }
    }

    pub(crate) fn graph(&self) -> CuResult<Arc<Graph>> {
        self.graph.upgrade().ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn original(&self) -> u64 {
        self.original
    }

    pub(crate) fn work(&self) -> Work {
        self.work.lock().clone()
    }

    /// Gives the node other work of the same kind.
    pub(crate) fn set(&self, work: Work) -> CuResult {
        let mut old = self.work.lock();
        require(old.kind() == work.kind(), CUDA_ERROR_INVALID_VALUE)?;
        // Dropped after the lock is free.
        let old = std::mem::replace(&mut *old, work);
        drop(old);
        Ok(())
    }

    /// Implements `cuGraphKernelNodeGetAttribute`. Returns zeros if the attribute was not set.
    pub(crate) fn attribute(&self, id: u32) -> CuResult<[u32; 16]> {
        require(self.work.lock().kind() == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE)?;
        let attributes = self.attributes.lock();
        Ok(attributes.iter().find(|(known, _)| *known == id).map_or([0; 16], |(_, value)| *value))
    }

    pub(crate) fn set_attribute(&self, id: u32, value: [u32; 16]) -> CuResult {
        require(self.work.lock().kind() == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE)?;
        let mut attributes = self.attributes.lock();
        attributes.retain(|(known, _)| *known != id);
        attributes.push((id, value));
        Ok(())
    }

    pub(crate) fn copy_attributes(&self, from: &Self) {
        let all = from.attributes.lock().clone();
        *self.attributes.lock() = all;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("number", &self.number)
            .field("kind", &self.work.lock().kind())
            .finish_non_exhaustive()
    }
}
