//! Wait lists and events of commands: the last three parameters of every enqueue function.

use std::sync::Arc;

use penstock_cl_sys::{
    CL_FALSE, CL_INVALID_CONTEXT, CL_INVALID_EVENT_WAIT_LIST, cl_bool, cl_command_type, cl_event,
    cl_uint,
};
use penstock_client::Want;

use crate::core::context::Context;
use crate::core::event::Event;
use crate::core::queue::Queue;
use crate::edge::{ClError, ClResult, Handle, Object, Ref, array, require, store};

/// Reads the wait list of a command in a queue of `context`.
///
/// # Safety
/// `list` is `NULL` or points to `count` events.
///
/// # Errors
/// `CL_INVALID_EVENT_WAIT_LIST` or `CL_INVALID_CONTEXT`.
pub(crate) unsafe fn wait_list(
    context: &Ref<Context>,
    count: cl_uint,
    list: *const cl_event,
) -> ClResult<Vec<penstock_client::Event>> {
    // "CL_INVALID_EVENT_WAIT_LIST if event_wait_list is NULL and num_events_in_wait_list > 0, or
    // event_wait_list is not NULL and num_events_in_wait_list is 0, or if event objects in
    // event_wait_list are not valid events."
    require(list.is_null() == (count == 0), CL_INVALID_EVENT_WAIT_LIST)?;
    // SAFETY: guaranteed by the caller.
    let list = unsafe { array(list, count as usize, CL_INVALID_EVENT_WAIT_LIST) }?;
    let mut events = Vec::with_capacity(list.len());
    for raw in list {
        let event = Event::borrow(*raw).map_err(|_| ClError(CL_INVALID_EVENT_WAIT_LIST))?;
        // "CL_INVALID_CONTEXT if the context associated with command_queue and events in
        // event_wait_list are not the same."
        require(Arc::ptr_eq(&event.context, context), CL_INVALID_CONTEXT)?;
        events.push(event.pool.clone());
    }
    Ok(events)
}

/// Returns whether the program wants the command's event.
pub(crate) fn want(event: *mut cl_event) -> Want {
    if event.is_null() { Want::Nothing } else { Want::Event }
}

/// Like [`want`], for a command that moves no bytes. A blocking call returns when the command's
/// turn has come: after its wait list, earlier barriers, and earlier commands of an in-order queue.
pub(crate) fn want_turn(blocking: cl_bool, event: *mut cl_event) -> Want {
    if blocking != CL_FALSE { Want::Event } else { want(event) }
}

/// Gives the program the event of an enqueued command if it wants one. Otherwise the next call that
/// waits for the queue reports a failure of the command.
///
/// # Safety
/// `place` is `NULL` or writable.
pub(crate) unsafe fn hand_out(
    enqueued: Option<penstock_client::Event>,
    command_type: cl_command_type,
    queue: &Ref<Queue>,
    place: *mut cl_event,
) {
    if place.is_null() {
        if let Some(event) = &enqueued {
            queue.pool.report(event);
        }
        return;
    }
    // A command without an event of its own had nothing to do and has ended.
    let pool = enqueued.unwrap_or_else(|| penstock_client::Event::ended(penstock_wire::Status::OK));
    let event =
        Event { pool, context: queue.context.clone(), queue: Some(queue.clone()), command_type };
    // SAFETY: guaranteed by the caller.
    unsafe { store(place, Handle::create(&**queue, event).raw()) };
}
