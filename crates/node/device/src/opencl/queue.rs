//! Command queues, and the code that enqueues every command.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use penstock_cl_sys::{CL_QUEUE_PROFILING_ENABLE, cl_command_queue, cl_event, cl_int, cl_uint};
use penstock_process::{Guard, Lock};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::device::Device;
use super::event::Event;
use super::reclaim::Reclaim;
use super::retire::KeptQueue;
use super::watch::Inside;
use crate::driver::{DeviceDriver, Want};
use crate::event;

/// Longest time that a command for a device that must not wait is held back (see
/// [`Device::must_not_wait`]). The caller waits too, so this is shorter than a peer's time-out for
/// a worker.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);

/// A command queue. Its commands are in `command`, `transfer` and `image_command`.
#[derive(Debug)]
pub(super) struct Queue {
    raw: Arc<KeptQueue>,
    context: Context,
    device: Device,
    properties: u64,
    reclaim: Lock<Reclaim>,
}

impl Queue {
    pub(super) fn new(
        raw: Arc<KeptQueue>,
        context: &Context,
        device: &Device,
        properties: u64,
    ) -> Self {
        let (context, device) = (context.clone(), device.clone());
        Self { raw, context, device, properties, reclaim: Lock::default() }
    }

    pub(super) fn raw(&self) -> cl_command_queue {
        self.raw.raw()
    }

    pub(super) fn kept(&self) -> &KeptQueue {
        &self.raw
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn reclaim_state(&self) -> Guard<'_, Reclaim> {
        self.reclaim.lock()
    }

    /// Enqueues a command. `call` gets the wait list's length and start, and the event's place or
    /// null.
    pub(super) fn enqueue_with(
        &self,
        waits: &[&event::Event],
        want: Want,
        call: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Option<Arc<Event>>, Status> {
        // Most commands have an empty wait list; an empty `Vec` does not allocate.
        let list: Result<Vec<cl_event>, Status> =
            waits.iter().map(|event| Ok(event.driver::<Event>()?.raw())).collect();
        let list = list?;
        let length = api::count(list.len())?;
        if !waits.is_empty() && self.device.must_not_wait() {
            wait_here(waits)?;
        }
        let start = if list.is_empty() { std::ptr::null() } else { list.as_ptr() };
        let mut event = std::ptr::null_mut();
        // If only the driver needs the event, `drop` keeps it until the command has ended.
        let has_event = want == Want::Event || self.context.may_fail();
        let place = if has_event { &raw mut event } else { std::ptr::null_mut() };
        let _inside = Inside::enter();
        {
            let _no_event_fails_now =
                self.context.failing().read().unwrap_or_else(PoisonError::into_inner);
            if waits.iter().any(|event| event.status().is_error()) {
                return Err(Status::WAIT_LIST_FAILED);
            }
            api::check(call(length, start, place))?;
        }
        if !has_event {
            return Ok(None);
        }
        let profiles = self.properties & CL_QUEUE_PROFILING_ENABLE != 0;
        let made = api::made(event, 0);
        let event =
            made.map(|raw| Event::of_command(raw, &self.context, profiles, !list.is_empty()));
        if want == Want::Event { event.map(Some) } else { Ok(None) }
    }

    /// Enqueues a marker behind all commands so far.
    pub(super) fn marker(
        &self,
        waits: &[&event::Event],
        want: Want,
    ) -> Result<Option<Arc<Event>>, Status> {
        let marker = function!(clEnqueueMarkerWithWaitList)?;
        self.enqueue_with(waits, want, |length, list, event| {
            // SAFETY: the queue lives; `enqueue_with` made list and event.
            unsafe { marker(self.raw(), length, list, event) }
        })
    }

    /// As [`Self::enqueue_with`], with an event.
    pub(super) fn enqueue_with_event(
        &self,
        waits: &[&event::Event],
        call: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Arc<Event>, Status> {
        // `enqueue_with` returns an event if one is wanted.
        self.enqueue_with(waits, Want::Event, call)?.ok_or(Status::OUT_OF_RESOURCES)
    }
}

/// Blocks until all events have ended, for at most [`HELD_BACK_MAX`].
fn wait_here(waits: &[&event::Event]) -> Result<(), Status> {
    let start = Instant::now();
    while waits.iter().any(|event| event.status().0 > 0) {
        if start.elapsed() > HELD_BACK_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = std::mem::take(self.reclaim.get_mut());
        state.outlive(&self.raw, &self.context);
    }
}
