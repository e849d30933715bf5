//! Events: of commands, and those that the program ends itself.

use std::sync::Arc;

use penstock_cl_sys::{_cl_event, CL_INVALID_EVENT, CL_SUBMITTED, cl_command_type, cl_int};
use penstock_wire::Status;

use super::context::Context;
use super::queue::Queue;
use crate::edge::{ClError, ClResult, Handle, Object, Ref};

/// Behind a `cl_event`.
#[derive(Debug)]
pub(crate) struct Event {
    /// The pool's view of it.
    pub(crate) pool: penstock_client::Event,
    pub(crate) context: Ref<Context>,
    /// The command's queue; none for a user event.
    pub(crate) queue: Option<Ref<Queue>>,
    pub(crate) command_type: cl_command_type,
}

impl Object for Event {
    type Raw = _cl_event;
    const INVALID: cl_int = CL_INVALID_EVENT;
}

impl Event {
    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    pub(crate) fn status(&self) -> cl_int {
        self.pool.poll().map_or(CL_SUBMITTED, |status| status.0)
    }
}

impl Handle<Event> {
    /// Calls `callback` in the client's callback thread when the event reaches `status` or has passed it, with what was
    /// asked for, or with the error that ended the command.
    pub(crate) fn on_status(
        self: &Arc<Self>,
        status: cl_int,
        callback: impl FnOnce(&Ref<Event>, cl_int) + Send + 'static,
    ) {
        let event = self.clone();
        let call =
            move |ended: Status| callback(&event, if ended.is_error() { ended.0 } else { status });
        match status {
            // Every event that a program has is submitted. An event that has ended calls back at once.
            CL_SUBMITTED => penstock_client::Event::ended(Status::OK).on_complete(call),
            // Workers do not tell when a command starts: its start is known with its end.
            _ => self.pool.on_complete(call),
        }
    }
}

/// Waits for the end of a command that the program wants to block on; its failure is the function's.
///
/// # Errors
/// The code with which the command ended. "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the read and write operations
/// are blocking and the execution status of any of the events in event_wait_list is a negative integer value."
pub(crate) fn wait_for(event: &penstock_client::Event) -> ClResult {
    let status: Status = event.wait();
    status.ok().map_err(ClError::from)
}
