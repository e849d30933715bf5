//! Queues: their creation, and whether one has nothing outstanding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;
use penstock_device as device;
use penstock_device::Want;
use penstock_link::Body;
use penstock_process::Lock;
use penstock_wire::calls::{Serve, to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, I32, Id, Payload, Status, TimesOf};

use super::event::Event;
use super::line::Line;
use super::read::Sending;
use super::{Session, Shared};
use crate::usage::Meter;

/// Number of commands after a finish that get an event even if the client asks for none. A client
/// that finishes after every few commands then waits for the last command's event; a marker behind
/// it would cost another turn of the device's thread (66 µs instead of 34 for a launch and its
/// finish). Later commands get none: an event costs 2 µs in PoCL.
const EVENTS_AFTER_FINISH: u64 = 4;

/// A command queue, and what the session knows of its progress without asking the driver.
pub(crate) struct Queue {
    pub(crate) device: device::Queue,
    pub(crate) in_order: bool,
    /// Whether commands with events need times, and so a turn at the device.
    pub(crate) timed: bool,
    /// Number of the last command given to the device.
    serial: u64,
    /// Number of the last command before the last finish.
    finished: u64,
    /// The last command that is known to have ended together with all before it.
    reached: Arc<Progress>,
    /// Event of an in-order queue's last command, if it has one; a finish can follow it.
    last: Option<Last>,
    /// Reads in place: later commands must not change the memory before it is sent.
    sending: Vec<Arc<Sending>>,
    /// First failure of a command without an event that the client does not know yet.
    failure: Option<Status>,
    /// Whether commands were given to the driver since the last flush.
    pub(crate) dirty: bool,
}

/// The event of an in-order queue's last command.
enum Last {
    /// An event that the client knows.
    Event(Arc<Event>),
    /// An event that only the driver knows.
    Native(device::Event, Mark),
}

/// How far a queue has come.
pub(crate) struct Progress {
    reached: AtomicU64,
    /// Counts how long the device is in use.
    meter: Option<Arc<Meter>>,
    /// The last command given to the device, and whether the meter runs for this queue.
    given: Lock<(u64, bool)>,
    /// Ends that are still to be reported.
    line: Line,
}

impl Progress {
    fn new(meter: Option<Arc<Meter>>) -> Self {
        Self { reached: AtomicU64::new(0), meter, given: Lock::default(), line: Line::default() }
    }

    /// Notes that the device got a command.
    fn give(&self, serial: u64) {
        let Some(meter) = &self.meter else { return };
        let mut given = self.given.lock();
        let runs = std::mem::replace(&mut *given, (serial, true)).1;
        if !runs {
            meter.begin();
        }
    }

    pub(crate) fn reach(&self, serial: u64) {
        let reached = self.reached.fetch_max(serial, Ordering::AcqRel).max(serial);
        let Some(meter) = &self.meter else { return };
        let mut given = self.given.lock();
        if given.1 && reached >= given.0 {
            given.1 = false;
            meter.end();
        }
    }
}

impl Drop for Progress {
    /// Stops the meter: a queue may be released before its commands are known to have ended.
    fn drop(&mut self) {
        let given = self.given.get_mut();
        if let (Some(meter), true) = (&self.meter, given.1) {
            meter.end();
        }
    }
}

impl Queue {
    fn new(device: device::Queue, timed: bool, meter: Option<Arc<Meter>>) -> Self {
        Self {
            in_order: !device.is_out_of_order(),
            timed,
            device,
            serial: 0,
            finished: 0,
            reached: Arc::new(Progress::new(meter)),
            last: None,
            sending: Vec::new(),
            failure: None,
            dirty: false,
        }
    }

    /// Whether every command so far is known to have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.can_be_read() && self.sending.iter().all(|sending| sending.is_sent())
    }

    /// Whether memory no longer changes: all commands have ended, except for reads being sent.
    pub(crate) fn can_be_read(&self) -> bool {
        self.reached.reached.load(Ordering::Acquire) >= self.serial
    }

    /// Numbers a command that was given to the device. The mark reports its end.
    pub(crate) fn count(&mut self) -> Mark {
        self.serial += 1;
        self.dirty = true;
        self.last = None;
        self.reached.give(self.serial);
        Mark { progress: self.reached.clone(), serial: self.serial, after_all: self.in_order }
    }

    /// Returns whether the next command needs an event.
    pub(crate) fn want(&self, asked: bool) -> Want {
        let soon = self.in_order && self.serial - self.finished < EVENTS_AFTER_FINISH;
        if asked || soon { Want::Event } else { Want::Nothing }
    }

    /// Notes the event of the last command.
    pub(crate) fn set_last(&mut self, event: &Arc<Event>) {
        if self.in_order {
            self.last = Some(Last::Event(event.clone()));
        }
    }

    /// Notes the driver's event of the last command, which only a finish will use.
    pub(crate) fn set_last_native(&mut self, native: device::Event, mark: Mark) {
        if self.in_order {
            self.last = Some(Last::Native(native, mark));
        }
    }

    /// Notes a read in place that is being sent from now on.
    pub(crate) fn set_sending(&mut self, sending: Arc<Sending>, event: &Arc<Event>) {
        self.sending.retain(|sending| !sending.is_sent());
        self.sending.push(sending);
        self.set_last(event);
    }

    /// Holds the next command back until pending reads in place are sent.
    pub(crate) fn pass_gate(&mut self) -> Result<(), Status> {
        if self.sending.is_empty() {
            return Ok(());
        }
        let mut gates = Vec::new();
        for sending in std::mem::take(&mut self.sending) {
            gates.extend(sending.gate(self.device.context())?);
        }
        if !gates.is_empty() {
            let gates: Vec<&device::Event> = gates.iter().collect();
            self.device.barrier(&gates, Want::Nothing)?;
            self.count();
        }
        Ok(())
    }

    /// Keeps the failure of a command without an event. The client learns it before the end of the
    /// next command with an event, or from the next finish; nobody waits for the queue earlier. So
    /// a client that never asks does not make frames pile up.
    pub(crate) fn fail(&mut self, status: Status) {
        self.failure.get_or_insert(status);
    }

    /// Reports a kept failure to the client. Call it before the device gets a command with an
    /// event.
    pub(crate) fn tell_failure(&mut self, shared: &Shared, queue: Id<kind::Queue>) {
        if let Some(status) = self.failure.take() {
            let call = to_client::QueueFailed { queue, status: I32::new(status.0) };
            shared.outbox.post(&call, &[], Body::None);
        }
    }

    /// Enqueues a marker that ends when all commands so far have ended.
    pub(crate) fn marker(&mut self) -> Result<(device::Event, Mark), Status> {
        self.pass_gate()?;
        let marker = self.device.marker(&[], Want::Event)?.ok_or(Status::OUT_OF_RESOURCES)?;
        let mut mark = self.count();
        // "If event_wait_list is NULL, then this particular command waits until all previous
        // enqueued commands to command_queue have completed": so its end is that of all, also out
        // of order.
        mark.after_all = true;
        Ok((marker, mark))
    }

    pub(crate) fn flush(&mut self) {
        if std::mem::take(&mut self.dirty)
            && let Err(status) = self.device.flush()
        {
            self.fail(status);
        }
    }
}

/// A command's place in its queue.
pub(crate) struct Mark {
    progress: Arc<Progress>,
    serial: u64,
    /// Whether it ends after all commands before it.
    pub(crate) after_all: bool,
}

impl Mark {
    /// Announces that its end will be reported. Call it before the driver can call back.
    pub(crate) fn expect(self) -> Turn {
        self.progress.line.expect(self.serial);
        Turn(self)
    }

    /// Notes that the command has ended, and with it all before it if it comes after them.
    pub(crate) fn reach(&self) {
        if self.after_all {
            self.progress.reach(self.serial);
        }
    }
}

/// The place of a command whose end must be reported. Unless it is taken, no later end is reported.
#[must_use]
pub(crate) struct Turn(Mark);

impl Turn {
    /// Reports the end after a callback: now, or when the ends before it are reported.
    pub(crate) fn take(self, tell: impl FnOnce(&Mark) + Send + 'static) {
        let Self(mark) = self;
        let (progress, serial, after_all) = (mark.progress.clone(), mark.serial, mark.after_all);
        progress.line.ended(serial, after_all, move || tell(&mark));
    }
}

impl Session {
    /// Flushes all queues with commands that the devices may not have got.
    pub(super) fn flush_queues(&mut self) {
        for id in std::mem::take(&mut self.unflushed) {
            if let Ok(queue) = self.queues.get_mut(id) {
                queue.flush();
            }
        }
    }

    /// Notes a queue with commands that the device may not have got.
    pub(super) fn note_unflushed(&mut self, id: Id<kind::Queue>) {
        if self.queues.get(id).is_ok_and(|queue| queue.dirty) && !self.unflushed.contains(&id) {
            self.unflushed.push(id);
        }
    }

    fn finish(&mut self, request: Id<kind::Request>, id: Id<kind::Queue>) -> Result<(), Status> {
        let queue = self.queues.get_mut(id)?;
        let shared = self.shared.clone();
        let failure = queue.failure.take();
        queue.finished = queue.serial;
        let answer = move |shared: &Shared, last: Status| {
            shared.drain_output();
            shared.reply(request, &failure.map_or(Ok(()), Err).and(last.ok()));
        };
        if queue.is_idle() {
            answer(&shared, Status::OK);
            return Ok(());
        }
        match queue.last.take() {
            Some(Last::Event(last)) => {
                queue.flush();
                // The event itself tells the client how it ended.
                last.follow(move |_| answer(&shared, Status::OK));
            }
            Some(Last::Native(last, mark)) => {
                queue.flush();
                // Only this finish reports its failure.
                answer_behind(shared, &last, mark, answer);
            }
            None => {
                let (marker, mark) = queue.marker()?;
                queue.flush();
                // A marker fails because of a command before it, which has reported that.
                answer_behind(shared, &marker, mark, move |shared, _| answer(shared, Status::OK));
            }
        }
        Ok(())
    }
}

/// Answers a finish when the last command of its queue has ended and all earlier ends are reported.
fn answer_behind(
    shared: Arc<Shared>,
    last: &device::Event,
    mark: Mark,
    answer: impl FnOnce(&Shared, Status) + Send + 'static,
) {
    let turn = mark.expect();
    last.on_complete(Box::new(move |status, _| {
        // If it waited for a failed event, the device did not refuse it: see `fail_in_order`.
        let status = if status == Status::WAIT_LIST_FAILED { Status::OK } else { status };
        turn.take(move |mark| {
            mark.reach();
            answer(&shared, status);
        });
    }));
}

impl Serve<to_worker::CreateQueue> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CreateQueue,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.queues.vacant(call.queue)?;
        let make = || {
            let context = self.objects.contexts.get(call.context)?;
            let device = self.objects.device(call.device.get())?;
            device::Queue::new(context, device, call.properties.get(), call.size.get())
        };
        let meter = self.objects.meter(call.device.get());
        let profiles = call.properties.get() & CL_QUEUE_PROFILING_ENABLE != 0;
        let queue = make().and_then(|device| {
            let times = TimesOf::from_wire(call.times.get()).ok_or(Status::INVALID_VALUE)?;
            Ok(Queue::new(device, profiles && times == TimesOf::Commands, meter))
        });
        if let Ok(queue) = &queue {
            self.shared.queues.lock().insert(call.queue, queue.device.clone());
        }
        self.queues.insert(call.queue, queue)
    }
}

impl Serve<to_worker::ReleaseQueue> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ReleaseQueue,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        if let Some(mut queue) = self.queues.remove(call.queue) {
            // "clReleaseCommandQueue performs an implicit flush to issue any previously queued
            // OpenCL commands."
            queue.flush();
            self.shared.queues.lock().remove(&call.queue);
        }
        Ok(())
    }
}

impl Serve<to_worker::Flush> for Session {
    fn serve(
        &mut self,
        call: &to_worker::Flush,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        if let Ok(queue) = self.queues.get_mut(call.queue) {
            queue.flush();
        }
        Ok(())
    }
}

impl Serve<to_worker::Finish> for Session {
    fn serve(
        &mut self,
        call: &to_worker::Finish,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        if let Err(status) = self.finish(call.request, call.queue) {
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}
