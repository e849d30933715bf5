//! Events.

use std::ffi::c_void;
use std::sync::Arc;

use crate::core::context::Context;
use crate::core::event::Event;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, UserData, array, cl_entry, functions, require,
};
use penstock_cl_sys::*;
use penstock_wire::Status;

functions! {
    slots {
        clWaitForEvents, clGetEventInfo, clRetainEvent, clReleaseEvent, clGetEventProfilingInfo,
        clSetEventCallback, clCreateUserEvent, clSetUserEventStatus,
    }
}

type CallbackFn = Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>;

cl_entry! {
    fn clCreateUserEvent(context: cl_context) -> ClResult<cl_event> {
        let context = Context::borrow(context)?;
        let pool = penstock_client::user_event();
        let event = Event { pool, context: context.clone(), queue: None, command_type: CL_COMMAND_USER };
        Ok(Handle::create(&*context, event).raw())
    }
}

cl_entry! {
    fn clSetUserEventStatus(event: cl_event, status: cl_int) -> ClResult<()> {
        let event = Event::borrow(event)?;
        // "CL_INVALID_EVENT if event is not a valid user event."
        require(event.queue.is_none(), CL_INVALID_EVENT)?;
        // "CL_INVALID_VALUE if the execution_status is not CL_COMPLETE or a negative integer
        // value."
        require(status <= CL_COMPLETE, CL_INVALID_VALUE)?;
        // "CL_INVALID_OPERATION if the execution_status for event has already been changed by a
        // previous call".
        require(penstock_client::set_user_event(&event.pool, Status(status)), CL_INVALID_OPERATION)
    }

    fn clWaitForEvents(num_events: cl_uint, list: *const cl_event) -> ClResult<()> {
        // SAFETY: guaranteed by the caller.
        let events = unsafe { read_events(num_events, list) }?;
        if events.len() > 1 {
            // The other events' nodes must know of their commands during the first wait.
            let mut flushed = None;
            for session in events.iter().filter_map(|event| Some(event.queue.as_ref()?.device.pool.session())) {
                // Most lists contain events of one queue.
                if flushed.replace(session.node()) != Some(session.node()) {
                    // The events of a lost node have ended.
                    _ = session.flush();
                }
            }
        }
        let failures = events.iter().map(|event| event.pool.wait()).filter(|status| status.is_error()).count();
        // "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the execution status of any of the
        // events in event_list is a negative integer value."
        require(failures == 0, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)?;
        // The program may conclude that earlier commands of the queue have ended. Reports such a
        // command here if it was refused and the program has no event of it: "CL_OUT_OF_RESOURCES
        // if there is a failure to allocate resources required by the OpenCL implementation on the
        // device", or the driver's code.
        events.iter().filter_map(|event| event.queue.as_ref()).try_for_each(|queue| Ok(queue.pool.check()?))
    }

    fn clGetEventInfo(
        event: cl_event,
        name: cl_event_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let event = Event::borrow(event)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_EVENT_COMMAND_QUEUE => answer.value(event.queue.as_ref().map_or(std::ptr::null_mut(), Handle::raw)),
            CL_EVENT_CONTEXT => answer.value(event.context.raw()),
            CL_EVENT_COMMAND_TYPE => answer.value(event.command_type),
            CL_EVENT_COMMAND_EXECUTION_STATUS => answer.value(event.status()),
            CL_EVENT_REFERENCE_COUNT => answer.value(event.references()),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    fn clRetainEvent(event: cl_event) -> ClResult<()> {
        Event::retain(event)
    }

    fn clReleaseEvent(event: cl_event) -> ClResult<()> {
        Event::release(event)
    }

    fn clSetEventCallback(
        event: cl_event,
        status: cl_int,
        pfn_notify: CallbackFn,
        user_data: *mut c_void,
    ) -> ClResult<()> {
        let event = Event::borrow(event)?;
        // "CL_INVALID_VALUE if pfn_event_notify is NULL or if command_exec_callback_type is not
        // CL_SUBMITTED, CL_RUNNING, or CL_COMPLETE."
        let notify = pfn_notify.ok_or(ClError(CL_INVALID_VALUE))?;
        require(matches!(status, CL_SUBMITTED | CL_RUNNING | CL_COMPLETE), CL_INVALID_VALUE)?;
        let user_data = UserData::new(user_data);
        event.on_status(status, move |event, reached| {
            // SAFETY: calls the program's function with the arguments that it expects.
            unsafe { notify(event.raw(), reached, user_data.get()) }
        });
        Ok(())
    }

    fn clGetEventProfilingInfo(
        event: cl_event,
        name: cl_profiling_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let event = Event::borrow(event)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        // "CL_PROFILING_INFO_NOT_AVAILABLE if the CL_QUEUE_PROFILING_ENABLE flag is not set for the
        // command-queue, if the execution status of the command identified by event is not
        // CL_COMPLETE or if event is a user event object."
        let profiled = event.queue.as_ref().is_some_and(|queue| queue.profiles());
        require(profiled && event.status() == CL_COMPLETE, CL_PROFILING_INFO_NOT_AVAILABLE)?;
        let times = event.pool.times();
        match name {
            CL_PROFILING_COMMAND_QUEUED => answer.value(times.queued),
            CL_PROFILING_COMMAND_SUBMIT => answer.value(times.submitted),
            CL_PROFILING_COMMAND_START => answer.value(times.started),
            CL_PROFILING_COMMAND_END => answer.value(times.ended),
            CL_PROFILING_COMMAND_COMPLETE => answer.value(times.completed),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
}

/// Reads a list of events.
///
/// # Safety
/// `list` is `NULL` or points to `count` events.
pub(super) unsafe fn read_events(
    count: cl_uint,
    list: *const cl_event,
) -> ClResult<Vec<Ref<Event>>> {
    // "CL_INVALID_VALUE if num_events is zero or event_list is NULL."
    require(count != 0, CL_INVALID_VALUE)?;
    // SAFETY: guaranteed by the caller.
    let list = unsafe { array(list, count as usize, CL_INVALID_VALUE) }?;
    // "CL_INVALID_EVENT if event objects specified in event_list are not valid event objects."
    let events = Event::borrow_all(list)?;
    // "CL_INVALID_CONTEXT if events specified in event_list do not belong to the same context."
    let same =
        events.windows(2).all(|pair| matches!(pair, [a, b] if Arc::ptr_eq(&a.context, &b.context)));
    require(same, CL_INVALID_CONTEXT)?;
    Ok(events)
}
