//! Command queues, and the code that enqueues every command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use penstock_cl_sys::{
    CL_QUEUE_ON_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
    CL_QUEUE_PROPERTIES, CL_QUEUE_SIZE, cl_command_queue, cl_event, cl_int, cl_uint,
};
use penstock_trial::Place;
use penstock_wire::status::Status;

use super::api::{self, function, owned};
use super::context::Context;
use super::device::Device;
use super::event::Event;
use super::reclaim::Reclaim;
use super::watch::Inside;

owned!(
    /// One reference to a `cl_command_queue`.
    RawQueue(cl_command_queue),
    clReleaseCommandQueue
);

/// A queue that is released when the driver can take it.
#[derive(Debug)]
pub(super) struct OwnedQueue {
    /// `None` only while the queue is dropped.
    raw: Option<RawQueue>,
    /// Whether the driver must not free it earlier, see [`Device::keeps_queues_until_idle`].
    is_kept_until_idle: bool,
}

/// Longest time that a command for a device that must not wait is held back (see
/// [`Device::must_not_wait`]). The caller waits too, so this is shorter than a peer's time-out for
/// a worker.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);

/// Whether a command gets an event. Without one it is cheaper, but later failures are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Event,
    Nothing,
}

/// A command queue. Cheap to clone. Its commands are in `command`, `transfer` and `image_command`.
///
/// For all commands: `waits` must be events of the queue's context. The result is `Some` exactly if
/// an event is wanted. The error `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` means that an event
/// of the wait list has already failed, so the command will never run.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: Arc<OwnedQueue>,
    context: Context,
    device: Device,
    properties: u64,
    reclaim: Mutex<Reclaim>,
}

impl RawQueue {
    pub(super) fn finish(&self) -> Result<(), Status> {
        let finish = function!(clFinish)?;
        // SAFETY: the queue lives.
        api::check(unsafe { finish(self.raw()) })
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take().filter(|_| self.is_kept_until_idle) {
            super::retire::retire(raw);
        }
    }
}

impl OwnedQueue {
    pub(super) fn raw(&self) -> cl_command_queue {
        self.raw.as_ref().map_or(std::ptr::null_mut(), RawQueue::raw)
    }

    /// `clFinish`. After a blocking write of Intel's runtime, other queues see the bytes only
    /// later.
    pub(super) fn finish(&self) -> Result<(), Status> {
        self.raw.as_ref().map_or(Ok(()), RawQueue::finish)
    }

    pub(super) fn create(
        context: &Context,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Self, Status> {
        let raw = RawQueue::create(context, device, properties, size)?;
        Ok(Self { raw: Some(raw), is_kept_until_idle: device.keeps_queues_until_idle() })
    }
}

impl RawQueue {
    fn create(
        context: &Context,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Self, Status> {
        if !context.devices().contains(device) {
            return Err(Status::INVALID_DEVICE);
        }
        let mut code = 0;
        if context.platform().is_at_least(2, 0) {
            let create = function!(clCreateCommandQueueWithProperties)?;
            let mut list = vec![u64::from(CL_QUEUE_PROPERTIES), properties];
            if size != 0 {
                list.extend([u64::from(CL_QUEUE_SIZE), u64::from(size)]);
            }
            list.push(0);
            // SAFETY: context and device live; the list ends with 0.
            let handle = unsafe { create(context.raw(), device.raw(), list.as_ptr(), &mut code) };
            return api::made(handle, code).map(Self::take);
        }
        if size != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let create = function!(clCreateCommandQueue)?;
        // SAFETY: context and device live.
        let handle = unsafe { create(context.raw(), device.raw(), properties, &mut code) };
        api::made(handle, code).map(Self::take)
    }
}

impl Queue {
    /// `clCreateCommandQueueWithProperties`; `size` is `CL_QUEUE_SIZE`, or 0 for none.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_DEVICE` if the context does not have the device.
    pub fn new(
        context: &Context,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Self, Status> {
        let raw = OwnedQueue::create(context, device, properties, size)?;
        Ok(Self::over(Arc::new(raw), context, device, properties))
    }

    /// Makes a queue over one that the context keeps.
    pub(super) fn over(
        raw: Arc<OwnedQueue>,
        context: &Context,
        device: &Device,
        properties: u64,
    ) -> Self {
        let (context, device) = (context.clone(), device.clone());
        Self(Arc::new(Inner { raw, context, device, properties, reclaim: Mutex::default() }))
    }

    pub(super) fn raw(&self) -> cl_command_queue {
        self.0.raw.raw()
    }

    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub fn is_out_of_order(&self) -> bool {
        self.0.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0
    }

    /// Whether events of its commands have times.
    pub(super) fn profiles(&self) -> bool {
        self.0.properties & CL_QUEUE_PROFILING_ENABLE != 0
    }

    /// Whether it is a queue on the device, which takes no commands from the host.
    pub fn is_on_device(&self) -> bool {
        self.0.properties & CL_QUEUE_ON_DEVICE != 0
    }

    /// `clFlush`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn flush(&self) -> Result<(), Status> {
        let flush = function!(clFlush)?;
        let _inside = Inside::enter();
        // SAFETY: the queue lives.
        api::check(unsafe { flush(self.raw()) })
    }

    /// `clFinish`: blocks until all commands of the queue have ended.
    ///
    /// # Errors
    /// The driver's error.
    pub fn finish(&self) -> Result<(), Status> {
        let finish = function!(clFinish)?;
        let slabs = self.reclaim_state().take_doubtful();
        let finished = {
            let _inside = Inside::enter();
            // SAFETY: the queue lives.
            api::check(unsafe { finish(self.raw()) })
        };
        let mut reclaim = self.reclaim_state();
        if finished.is_ok() {
            reclaim.all_ended(slabs);
        } else {
            reclaim.none_ended(slabs);
        }
        finished
    }

    /// Frees staged bytes of commands that have ended. Commands do so now and then; a caller that
    /// reaches `limits::STAGED_BYTES_MAX` calls this for each queue.
    pub fn reclaim(&self) {
        self.reclaim_state().sweep();
    }

    pub(super) fn reclaim_state(&self) -> std::sync::MutexGuard<'_, Reclaim> {
        self.0.reclaim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a command. `call` gets the wait list's length and start, and the event's place or
    /// null.
    pub(super) fn enqueue(
        &self,
        waits: &[&Event],
        want: Want,
        call: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Option<Event>, Status> {
        // Most commands have an empty wait list; an empty `Vec` does not allocate.
        let late = self.late_start(waits);
        let list: Vec<cl_event> =
            waits.iter().copied().chain(late.as_ref()).map(|event| event.raw()).collect();
        let length = api::count(list.len())?;
        // "CL_INVALID_CONTEXT if the context associated with command_queue and events in
        // event_wait_list are not the same."
        if waits.iter().any(|event| event.context_id() != self.context().id()) {
            return Err(Status::INVALID_CONTEXT);
        }
        if !waits.is_empty() && self.device().must_not_wait() {
            wait_here(waits)?;
        }
        let start = if list.is_empty() { std::ptr::null() } else { list.as_ptr() };
        let mut event = std::ptr::null_mut();
        // If only the driver needs the event, `drop` keeps it until the command has ended.
        let has_event = want == Want::Event || self.context().may_fail();
        let place = if has_event { &raw mut event } else { std::ptr::null_mut() };
        let _inside = Inside::enter();
        {
            let _no_event_fails_now =
                self.context().failing().read().unwrap_or_else(PoisonError::into_inner);
            if waits.iter().any(|event| event.status().is_error()) {
                return Err(Status::WAIT_LIST_FAILED);
            }
            api::check(call(length, start, place))?;
        }
        if !has_event {
            return Ok(None);
        }
        let event =
            api::made(event, 0).map(|event| Event::of_command(event, self, !list.is_empty()));
        if want == Want::Event { event.map(Some) } else { Ok(None) }
    }

    /// In builds that inject delays: may make an event that holds the command back a little.
    fn late_start(&self, waits: &[&Event]) -> Option<Event> {
        if !penstock_trial::is_put_off(Place::DeviceStarts) {
            return None;
        }
        // In an out-of-order queue a wait list would change the meaning of a marker.
        if self.device().must_not_wait() || (waits.is_empty() && self.is_out_of_order()) {
            return None;
        }
        let event = Event::user(self.context()).ok()?;
        let late = event.clone();
        std::thread::spawn(move || {
            penstock_trial::delay(Place::DeviceStarts);
            // If the context is gone, the event holds nothing back.
            _ = late.complete(Status::OK);
        });
        Some(event)
    }

    /// As [`Self::enqueue`], with an event.
    pub(super) fn enqueue_with_event(
        &self,
        waits: &[&Event],
        call: impl FnOnce(cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Event, Status> {
        // `enqueue` returns an event if one is wanted.
        self.enqueue(waits, Want::Event, call)?.ok_or(Status::OUT_OF_RESOURCES)
    }
}

/// Blocks until all events have ended, for at most [`HELD_BACK_MAX`].
fn wait_here(waits: &[&Event]) -> Result<(), Status> {
    let start = Instant::now();
    while waits.iter().any(|event| event.status().0 > 0) {
        if start.elapsed() > HELD_BACK_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = std::mem::take(self.reclaim.get_mut().unwrap_or_else(PoisonError::into_inner));
        state.outlive(&self.raw, &self.context);
    }
}
