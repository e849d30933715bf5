//! Functions of the program in streams.

use penstock_client::HostShape;
use penstock_cuda_sys::driver::{CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS, CUresult};
use penstock_wire::Status;

use super::context::Context;
use super::stream::Stream;
use crate::edge::CuResult;

/// Calls `call` when everything in the stream so far has ended; what comes later in the stream waits for it. It runs in the
/// client's thread for callbacks, so it must not wait for streams: "Host functions must not make any CUDA API calls".
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
