//! What nodes do: the same descriptions that calls give to streams.

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

/// The work of a node, and the context that it is done in.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A launch, in the context of its function.
    Kernel(Arc<Fixed>),
    Copy(Weak<Context>, Slices),
    Fill(Weak<Context>, Fill),
    /// A function of the program. It is called when everything before it has ended.
    Host(HostCall),
    /// Another graph, which is the node's own.
    Child(Arc<Graph>),
    Empty,
    /// Waits for an event as it was recorded last.
    Wait(Arc<Event>),
    Record(Arc<Event>),
    Allocate(Arc<Memory>),
    /// Gives back memory of a graph, by its address.
    Free(u64),
}

/// A fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// Bytes of the value that count: 1, 2, or 4.
    pub(crate) element: u32,
    /// Elements of a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Fill {
    /// Whether it is one.
    pub(crate) fn check(&self) -> CuResult {
        require([1, 2, 4].contains(&self.element), CUDA_ERROR_INVALID_VALUE)?;
        require(self.width > 0 && self.height > 0, CUDA_ERROR_INVALID_VALUE)?;
        require(self.to.is_multiple_of(u64::from(self.element)), CUDA_ERROR_INVALID_VALUE)
    }

    /// Does it.
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
    /// `CUgraphNodeType`.
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

    /// Whether memory is allocated or freed in it.
    pub(super) fn has_memory(&self) -> bool {
        match self {
            Self::Allocate(_) | Self::Free(_) => true,
            Self::Child(graph) => graph.has_memory(),
            _ => false,
        }
    }

    /// The same for a node of another graph.
    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Child(graph) => Self::Child(graph.duplicate(true)),
            other => other.clone(),
        }
    }

    /// The context that it must be done in. None: any.
    ///
    /// # Errors
    /// The context is gone.
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

    /// Does it in a stream. Nobody waits for it. Graphs in graphs are not done so, but by their plan.
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
            // The memory is there as long as the graph is.
            Self::Allocate(memory) => memory::begin(memory),
            Self::Free(address) => memory::free(*address).unwrap_or(Err(CUDA_ERROR_INVALID_VALUE)),
        }
    }
}
