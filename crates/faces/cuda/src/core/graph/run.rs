//! Runs the work of nodes in streams.

use std::sync::Arc;

use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};

use super::memory;
use super::work::Work;
use crate::core::callback;
use crate::core::context::Context;
use crate::core::copy::CopyMode;
use crate::core::stream::Stream;
use crate::edge::CuResult;

impl Work {
    /// Runs the work in a stream without waiting for it. Does nothing for a child graph, because
    /// the plan contains its steps.
    pub(super) fn run(&self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        match self {
            Self::Kernel(launch) => launch.run(context, stream),
            Self::Copy(_, copy) => copy.run(context, stream, CopyMode::Unattended),
            Self::Fill(_, fill) => fill.run(context, stream),
            Self::Library(_, call) => call.run(context, stream),
            Self::Host(call) => {
                let call = *call;
                callback::in_stream(context, stream, move |status| {
                    if status == CUDA_SUCCESS {
                        call.call();
                    }
                })
            }
            Self::Child(_) => Ok(()),
            Self::Empty => context.act_in(stream),
            Self::Wait(event) => match event.awaited()? {
                Some(event) => context.wait_in(stream, &event),
                None => context.act_in(stream),
            },
            Self::Record(event) => event.record(context, stream),
            // The memory exists as long as the graph.
            Self::Allocate(memory) => memory::hold(memory),
            Self::Free(address) => memory::free(*address).unwrap_or(Err(CUDA_ERROR_INVALID_VALUE)),
        }
    }
}
