//! Commands that order other commands, and native kernels.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_client::Want;

use super::event::read_events;
use super::waits::{hand_out, wait_list, want};
use crate::core::queue::Queue;
use crate::edge::{ClError, cl_entry, functions, require};
use penstock_cl_sys::*;

functions! {
    slots {
        clEnqueueMarkerWithWaitList, clEnqueueBarrierWithWaitList, clEnqueueMarker,
        clEnqueueBarrier, clEnqueueWaitForEvents, clEnqueueNativeKernel,
    }
}

type NativeFn = Option<unsafe extern "C" fn(*mut c_void)>;

cl_entry! {
    fn clEnqueueMarkerWithWaitList(
        queue: cl_command_queue,
        num_events: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        // SAFETY: guaranteed by the caller.
        let waits = unsafe { wait_list(&queue.context, num_events, list) }?;
        let marker = queue.pool.marker(None, &waits, want(event))?;
        // SAFETY: guaranteed by the caller.
        unsafe { hand_out(marker, CL_COMMAND_MARKER, &queue, event) };
        Ok(())
    }

    fn clEnqueueBarrierWithWaitList(
        queue: cl_command_queue,
        num_events: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        // SAFETY: guaranteed by the caller.
        let waits = unsafe { wait_list(&queue.context, num_events, list) }?;
        let barrier = queue.pool.barrier(&waits, want(event))?;
        // SAFETY: guaranteed by the caller.
        unsafe { hand_out(barrier, CL_COMMAND_BARRIER, &queue, event) };
        Ok(())
    }

    /// Deprecated since OpenCL 1.2.
    fn clEnqueueMarker(queue: cl_command_queue, event: *mut cl_event) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        // "CL_INVALID_VALUE if event is a NULL value."
        require(!event.is_null(), CL_INVALID_VALUE)?;
        let marker = queue.pool.marker(None, &[], Want::Event)?;
        // SAFETY: guaranteed by the caller.
        unsafe { hand_out(marker, CL_COMMAND_MARKER, &queue, event) };
        Ok(())
    }

    /// Deprecated since OpenCL 1.2.
    fn clEnqueueBarrier(queue: cl_command_queue) -> ClResult<()> {
        Queue::borrow_host(queue)?.pool.barrier(&[], Want::Nothing)?;
        Ok(())
    }

    /// Makes later commands of the queue wait for the events. Deprecated since OpenCL 1.2.
    fn clEnqueueWaitForEvents(queue: cl_command_queue, num_events: cl_uint, list: *const cl_event) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        // SAFETY: guaranteed by the caller.
        let events = unsafe { read_events(num_events, list) }?;
        // "CL_INVALID_CONTEXT if the context associated with command_queue and events in event_list
        // are not the same."
        let own = events.iter().all(|event| Arc::ptr_eq(&event.context, &queue.context));
        require(own, CL_INVALID_CONTEXT)?;
        let waits: Vec<_> = events.iter().map(|event| event.pool.clone()).collect();
        queue.pool.barrier(&waits, Want::Nothing)?;
        Ok(())
    }

    /// Always fails: a native kernel is a function of the program's own process, which no device of
    /// another process can run.
    fn clEnqueueNativeKernel(
        queue: cl_command_queue,
        _function: NativeFn,
        _args: *mut c_void,
        _args_size: usize,
        _num_mem_objects: cl_uint,
        _mem_list: *const cl_mem,
        _args_mem_loc: *mut *const c_void,
        _num_events: cl_uint,
        _list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult<()> {
        Queue::borrow_host(queue)?;
        // "CL_INVALID_OPERATION if the device associated with command_queue cannot execute the
        // native kernel."
        Err(ClError(CL_INVALID_OPERATION))
    }
}
