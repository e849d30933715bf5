//! Host functions that the program puts into streams.

use penstock_client::HostShape;
use penstock_cuda_sys::driver::{CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS, CUresult};
use penstock_wire::Status;

use super::context::Context;
use super::stream::Stream;
use crate::edge::CuResult;

/// Calls `call` when all commands so far in the stream have ended. Later commands of the stream
/// wait for it. `call` runs in the client's callback thread, so it must not wait for streams: "Host
/// functions must not make any CUDA API calls".
pub(crate) fn in_stream(
    context: &Context,
    stream: &Stream,
    call: impl FnOnce(CUresult) + Send + 'static,
) -> CuResult {
    let started = context.issue(stream, |queue, waits| {
        // The function may write any memory of the program.
        let uses = (Some(HostShape::EVERYTHING), Some(HostShape::EVERYTHING));
        let done = queue.run(uses, waits, move |status| {
            call(if status.is_error() { CUDA_ERROR_LAUNCH_FAILED } else { CUDA_SUCCESS });
            Status::OK
        })?;
        Ok(Some(done))
    });
    started.map(drop)
}
