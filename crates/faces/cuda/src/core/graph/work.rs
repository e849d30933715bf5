//! The work of nodes, in the same form in which calls give it to streams.

use std::sync::{Arc, Weak};

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::memory::GraphMemory;
use crate::core::context::Context;
use crate::core::event::Event;
use crate::core::launch::DescribedLaunch;
use crate::core::library_call::LibraryWork;
use crate::core::memset::Memset;
use crate::core::slice::SliceCopy;
use crate::edge::{CuResult, HostCall};

/// The work of a node, and its context if it needs one.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A launch, in the context of its function.
    Kernel(Arc<DescribedLaunch>),
    Copy(Weak<Context>, SliceCopy),
    Fill(Weak<Context>, Memset),
    /// A call of a library. Programs see it as a kernel.
    Library(Weak<Context>, Arc<LibraryWork>),
    /// Calls a function of the program when everything before it has ended.
    Host(HostCall),
    /// A child graph, which the node owns.
    Child(Arc<Graph>),
    Empty,
    /// Waits for an event as it was last recorded.
    Wait(Arc<Event>),
    Record(Arc<Event>),
    Allocate(Arc<GraphMemory>),
    /// Frees memory of a graph, by its address.
    Free(u64),
}

impl Work {
    /// Returns the value of `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) | Self::Library(..) => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(..) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(..) => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// Returns whether the work allocates or frees memory.
    pub(super) fn has_memory(&self) -> bool {
        match self {
            Self::Allocate(_) | Self::Free(_) => true,
            Self::Child(graph) => graph.has_memory(),
            _ => false,
        }
    }

    /// Copies the work for a node of another graph. A child graph is copied, too.
    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Child(graph) => Self::Child(graph.duplicate(true)),
            other => other.clone(),
        }
    }

    /// Returns the context that must do the work, or `None` if every context can do it.
    ///
    /// # Errors
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub(super) fn context(&self) -> CuResult<Option<Arc<Context>>> {
        match self {
            Self::Kernel(launch) => launch.function.loaded.context().map(Some),
            Self::Copy(context, _) | Self::Fill(context, _) | Self::Library(context, _) => {
                context.upgrade().map(Some).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
            }
            Self::Record(event) => event.home().map(Some),
            _ => Ok(None),
        }
    }
}
