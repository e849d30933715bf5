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
    context.late.call();
    let (before, _) = context.issue(stream, |queue, waits| queue.marker(None, waits, Want::Event))?;
    let before = before.unwrap_or_else(|| Event::ended(Status::OK));
    let after = Event::user();
    let gate = after.clone();
    // The order of the two calls is that of the queue: others' commands between them do not wait, and need not.
    let held = context.issue(stream, |queue, _| queue.barrier(&[gate], Want::Nothing));
    before.on_complete(move |status| {
        call(if status.is_error() { CUDA_ERROR_LAUNCH_FAILED } else { CUDA_SUCCESS });
        after.set_status(Status::OK);
    });
    stream.queue.flush().map_err(|error| context.failed(&error))?;
    held.map(drop)
}
