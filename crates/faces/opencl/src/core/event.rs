//! Events of commands, and user events.

use std::sync::Arc;

use penstock_cl_sys::{_cl_event, CL_INVALID_EVENT, CL_SUBMITTED, cl_command_type, cl_int};
use penstock_wire::Status;

use super::context::Context;
use super::queue::Queue;
use crate::edge::{ClError, ClResult, Handle, Object, Ref};

/// Object behind a `cl_event`.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) pool: penstock_client::Event,
    pub(crate) context: Ref<Context>,
    /// The command's queue; `None` for a user event.
    pub(crate) queue: Option<Ref<Queue>>,
    pub(crate) command_type: cl_command_type,
}

impl Object for Event {
    type Raw = _cl_event;
    const INVALID: cl_int = CL_INVALID_EVENT;
}

impl Event {
    /// Returns the value of `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    pub(crate) fn status(&self) -> cl_int {
        self.pool.poll().map_or(CL_SUBMITTED, |status| status.0)
    }
}

impl Handle<Event> {
    /// Calls `callback` in the client's callback thread when the event has reached `status`. The
    /// callback gets `status`, or the error that ended the command.
    pub(crate) fn on_status(
        self: &Arc<Self>,
        status: cl_int,
        callback: impl FnOnce(&Ref<Event>, cl_int) + Send + 'static,
    ) {
        let event = self.clone();
        let call =
            move |ended: Status| callback(&event, if ended.is_error() { ended.0 } else { status });
        match status {
            // Every event that a program has is submitted. An ended event calls back at once.
            CL_SUBMITTED => penstock_client::Event::ended(Status::OK).on_complete(call),
            // Workers do not report the start of a command; it is known only with the end.
            _ => self.pool.on_complete(call),
        }
    }
}

/// Waits for the end of a blocking command.
///
/// # Errors
/// Returns the command's error code. "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the read and
/// write operations are blocking and the execution status of any of the events in event_wait_list
/// is a negative integer value."
pub(crate) fn wait_for(event: &penstock_client::Event) -> ClResult {
    let status: Status = event.wait();
    status.ok().map_err(ClError::from)
}
