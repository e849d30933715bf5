//! Functions of the program in streams.

use penstock_client::{Event, Want};
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
    let after = Event::user();
    let gate = after.clone();
    // Both as one command: nothing of others comes between them, and what the first has to wait for holds for the second.
    let (before, _) = context.issue(stream, |queue, waits| {
        let before = queue.marker(None, waits, Want::Event)?;
        queue.barrier(&[gate], Want::Nothing)?;
        Ok(before)
    })?;
    context.late.call(after.clone());
    let before = before.unwrap_or_else(|| Event::ended(Status::OK));
    before.on_complete(move |status| {
        call(if status.is_error() { CUDA_ERROR_LAUNCH_FAILED } else { CUDA_SUCCESS });
        after.set_status(Status::OK);
    });
    stream.queue.flush().map_err(|error| context.failed(&error))
}
