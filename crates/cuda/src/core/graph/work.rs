//! The work of nodes, in the same form in which calls give it to streams.

use std::sync::{Arc, Weak};

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::memory::{self, Memory};
use crate::core::callback;
use crate::core::context::Context;
use crate::core::copy::When;
use crate::core::event::Event;
use crate::core::launch::Fixed;
use crate::core::slices::Slices;
use crate::core::stream::Stream;
use crate::edge::{CuResult, HostCall, require};

/// The work of a node, and its context if it needs one.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A launch, in the context of its function.
    Kernel(Arc<Fixed>),
    Copy(Weak<Context>, Slices),
    Fill(Weak<Context>, Fill),
    /// Calls a function of the program when everything before it has ended.
    Host(HostCall),
    /// A child graph, which the node owns.
    Child(Arc<Graph>),
    Empty,
    /// Waits for an event as it was last recorded.
    Wait(Arc<Event>),
    Record(Arc<Event>),
    Allocate(Arc<Memory>),
    /// Frees memory of a graph, by its address.
    Free(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// Size of an element in bytes: 1, 2 or 4.
    pub(crate) element: u32,
    /// Elements of a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Fill {
    /// Checks element size, extent and alignment.
    pub(crate) fn check(&self) -> CuResult {
        require([1, 2, 4].contains(&self.element), CUDA_ERROR_INVALID_VALUE)?;
        require(self.width > 0 && self.height > 0, CUDA_ERROR_INVALID_VALUE)?;
        require(self.to.is_multiple_of(u64::from(self.element)), CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn run(&self, context: &Context, stream: &Stream) -> CuResult {
        let bytes = self.value.to_le_bytes();
        let pattern = bytes.get(..self.element as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if self.height == 1 {
            return context.fill(stream, self.to, pattern, self.width);
        }
        context.fill_rows(stream, (self.to, self.pitch), pattern, (self.width, self.height))
    }
}

impl Work {
    /// Returns the value of `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
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

    /// Returns the context that must do the work. `None` if any can.
    ///
    /// # Errors
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub(super) fn context(&self) -> CuResult<Option<Arc<Context>>> {
        match self {
            Self::Kernel(launch) => launch.function.loaded.context().map(Some),
            Self::Copy(context, _) | Self::Fill(context, _) => {
                context.upgrade().map(Some).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
            }
            Self::Record(event) => event.home().map(Some),
            _ => Ok(None),
        }
    }

    /// Runs the work in a stream without waiting for it. Does nothing for a child graph, because
    /// the plan contains its steps.
    pub(super) fn run(&self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        match self {
            Self::Kernel(launch) => launch.run(context, stream),
            Self::Copy(_, copy) => copy.run(context, stream, When::Unattended),
            Self::Fill(_, fill) => fill.run(context, stream),
            Self::Host(call) => {
                let call = *call;
                callback::in_stream(context, stream, move |status| {
                    if status == CUDA_SUCCESS {
                        call.call();
                    }
                })
            }
            Self::Child(_) | Self::Empty => Ok(()),
            Self::Wait(event) => {
                event.awaited()?.map_or(Ok(()), |event| context.wait_in(stream, &event))
            }
            Self::Record(event) => event.record(context, stream),
            // The memory exists as long as the graph.
            Self::Allocate(memory) => memory::begin(memory),
            Self::Free(address) => memory::free(*address).unwrap_or(Err(CUDA_ERROR_INVALID_VALUE)),
        }
    }
}
