//! Nodes: work in a graph.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::work::Work;
use crate::edge::{CuResult, Object, forget, new_number, publish, require};

/// Behind a `CUgraphNode`.
pub(crate) struct Node {
    number: u64,
    graph: Weak<Graph>,
    /// The node that it was copied from; 0: none.
    original: u64,
    work: Mutex<Work>,
    /// `CUkernelNodeAttrID` and value. They are wishes about caches and schedules, kept to be asked for.
    attributes: Mutex<Vec<(u32, [u32; 16])>>,
}

impl Object for Node {
    type Raw = CUgraphNode_st;
    const INVALID: CUresult = CUDA_ERROR_INVALID_VALUE;

    fn number(&self) -> u64 {
        self.number
    }
}

impl Node {
    pub(super) fn new(graph: &Arc<Graph>, work: Work, original: u64) -> Arc<Self> {
        let node = Arc::new(Self {
            number: new_number(),
            graph: Arc::downgrade(graph),
            original,
            work: Mutex::new(work),
            attributes: Mutex::default(),
        });
        publish(&node);
        node
    }

    /// Its handle is none any more.
    pub(super) fn end(&self) {
        _ = forget(self);
        if let Work::Child(graph) = self.work() {
            _ = graph.end();
        }
    }

    /// Its graph.
    pub(crate) fn graph(&self) -> CuResult<Arc<Graph>> {
        self.graph.upgrade().ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn original(&self) -> u64 {
        self.original
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does.
    pub(crate) fn work(&self) -> Work {
        self.lock().clone()
    }

    /// Has it do something else of the same kind.
    pub(crate) fn set(&self, work: Work) -> CuResult {
        let mut old = self.lock();
        require(old.kind() == work.kind(), CUDA_ERROR_INVALID_VALUE)?;
        // Dropped without the lock.
        let old = std::mem::replace(&mut *old, work);
        drop(old);
        Ok(())
    }

    fn attributes(&self) -> MutexGuard<'_, Vec<(u32, [u32; 16])>> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `cuGraphKernelNodeGetAttribute`; zeros for what was not set.
    pub(crate) fn attribute(&self, id: u32) -> CuResult<[u32; 16]> {
        require(self.lock().kind() == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE)?;
        let attributes = self.attributes();
        Ok(attributes.iter().find(|(known, _)| *known == id).map_or([0; 16], |(_, value)| *value))
    }

    /// `cuGraphKernelNodeSetAttribute`.
    pub(crate) fn set_attribute(&self, id: u32, value: [u32; 16]) -> CuResult {
        require(self.lock().kind() == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE)?;
        let mut attributes = self.attributes();
        attributes.retain(|(known, _)| *known != id);
        attributes.push((id, value));
        Ok(())
    }

    /// `cuGraphKernelNodeCopyAttributes`.
    pub(crate) fn copy_attributes(&self, from: &Self) {
        let all = from.attributes().clone();
        *self.attributes() = all;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("number", &self.number)
            .field("kind", &self.lock().kind())
            .finish_non_exhaustive()
    }
}
