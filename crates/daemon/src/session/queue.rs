//! Queues: making them, and knowing when one has nothing outstanding.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_device as device;
use penstock_device::Want;
use penstock_link::Body;
use penstock_wire::calls::{Serve, to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, I32, Id, Payload, Status, TimesOf};

use super::event::{Event, lock};
use super::line::Line;
use super::read::Sending;
use super::{Session, Shared};
use crate::usage::Meter;

/// `CL_QUEUE_PROFILING_ENABLE`.
const PROFILING: u64 = 1 << 1;

/// So many commands after a finish have an event although nobody asked for one. Who finishes after each few commands then
/// waits for the last of them; a marker behind it would cost another turn of the device's thread (66 µs instead of 34
/// for a launch and its finish). Who enqueues many does without: events cost 2 µs each in PoCL.
const EVENTS_AFTER_FINISH: u64 = 4;

/// A command queue, and what the session knows of its progress without asking the driver.
pub(crate) struct Queue {
    pub(crate) device: device::Queue,
    pub(crate) in_order: bool,
    /// Whether the client is told the times of all commands with events, so that each needs a turn at the device.
    pub(crate) timed: bool,
    /// Number of the last command given to the device.
    serial: u64,
    /// Number of the last command before the last finish.
    finished: u64,
    /// The last command that is known to have ended, and with it all before it.
    reached: Arc<Progress>,
    /// The last command of an in-order queue, if it has an event: who finishes can follow it.
    last: Option<Last>,
    /// Reads that go out of home memory without a copy: later commands must not change it before it is sent.
    sending: Vec<Arc<Sending>>,
    /// First failure of a command that named no event, which the client has not been told yet.
    failure: Option<Status>,
    /// Whether commands were given to the driver since the last flush.
    pub(crate) dirty: bool,
}

/// The event of an in-order queue's last command.
enum Last {
    /// One that the client knows.
    Event(Arc<Event>),
    /// One that only the driver knows.
    Native(device::Event, Mark),
}

/// How far a queue has come.
pub(crate) struct Progress {
    reached: AtomicU64,
    /// Counts how long the device is in use.
    meter: Option<Arc<Meter>>,
    /// The last command given to the device, and whether the meter runs for this queue.
    given: Mutex<(u64, bool)>,
    /// Ends that are still to be told.
    line: Line,
}

impl Progress {
    fn new(meter: Option<Arc<Meter>>) -> Self {
        Self { reached: AtomicU64::new(0), meter, given: Mutex::default(), line: Line::default() }
    }

    /// The device has been given a command.
    fn give(&self, serial: u64) {
        let Some(meter) = &self.meter else { return };
        let mut given = lock(&self.given);
        let runs = std::mem::replace(&mut *given, (serial, true)).1;
        if !runs {
            meter.begin();
        }
    }

    pub(crate) fn reach(&self, serial: u64) {
        let reached = self.reached.fetch_max(serial, Ordering::AcqRel).max(serial);
        let Some(meter) = &self.meter else { return };
        let mut given = lock(&self.given);
        if given.1 && reached >= given.0 {
            given.1 = false;
            meter.end();
        }
    }
}

impl Drop for Progress {
    /// A queue may be released before its commands have ended, or be known to have.
    fn drop(&mut self) {
        let given = self.given.get_mut().unwrap_or_else(PoisonError::into_inner);
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

    /// Whether nothing changes memory any more: every command so far has ended, but for reads that are being sent.
    pub(crate) fn can_be_read(&self) -> bool {
        self.reached.reached.load(Ordering::Acquire) >= self.serial
    }

    /// Numbers a command that has been given to the device. What comes back tells its end.
    pub(crate) fn count(&mut self) -> Mark {
        self.serial += 1;
        self.dirty = true;
        self.last = None;
        self.reached.give(self.serial);
        Mark { progress: self.reached.clone(), serial: self.serial, after_all: self.in_order }
    }

    /// Whether the next command shall have an event.
    pub(crate) fn want(&self, asked: bool) -> Want {
        let soon = self.in_order && self.serial - self.finished < EVENTS_AFTER_FINISH;
        if asked || soon { Want::Event } else { Want::Nothing }
    }

    /// The last command is this event's.
    pub(crate) fn set_last(&mut self, event: &Arc<Event>) {
        if self.in_order {
            self.last = Some(Last::Event(event.clone()));
        }
    }

    /// The last command has this event, which nobody but a finish will ask for.
    pub(crate) fn set_last_native(&mut self, native: device::Event, mark: Mark) {
        if self.in_order {
            self.last = Some(Last::Native(native, mark));
        }
    }

    /// Notes a read that goes out of home memory from now on.
    pub(crate) fn set_sending(&mut self, sending: Arc<Sending>, event: &Arc<Event>) {
        self.sending.retain(|sending| !sending.is_sent());
        self.sending.push(sending);
        self.set_last(event);
    }

    /// Before a command: it must not overtake a read that is being sent.
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

    /// Keeps the failure of a command that named no event. The client is told before the end of the next command that has an event,
    /// or by the next finish: earlier nobody waits for the queue. So a client that never looks makes no frames pile up.
    pub(crate) fn fail(&mut self, status: Status) {
        self.failure.get_or_insert(status);
    }

    /// Tells the client of a failure that it does not know yet. To be called before a command with an event is given to the device.
    pub(crate) fn tell_failure(&mut self, shared: &Shared, queue: Id<kind::Queue>) {
        if let Some(status) = self.failure.take() {
            let call = to_client::QueueFailed { queue, status: I32::new(status.0) };
            shared.outbox.post(&call, &[], Body::None);
        }
    }

    /// An event that ends when all commands so far have ended.
    pub(crate) fn marker(&mut self) -> Result<(device::Event, Mark), Status> {
        self.pass_gate()?;
        let marker = self.device.marker(&[], Want::Event)?.ok_or(Status::OUT_OF_RESOURCES)?;
        let mut mark = self.count();
        // "If event_wait_list is NULL, then this particular command waits until all previous enqueued commands to
        // command_queue have completed": so it tells of all, out of order too.
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
    /// Whether it ends after all before it.
    pub(crate) after_all: bool,
}

impl Mark {
    /// The end will be told. To be said before the driver can call back for it.
    pub(crate) fn expect(self) -> Turn {
        self.progress.line.expect(self.serial);
        Turn(self)
    }

    /// The command has ended, and so have all before it if it comes after them.
    pub(crate) fn reach(&self) {
        if self.after_all {
            self.progress.reach(self.serial);
        }
    }
}

/// The place of a command whose end is to be told. It must be taken, or nothing behind it is ever told.
#[must_use]
pub(crate) struct Turn(Mark);

impl Turn {
    /// The driver has called back: tells the end, now or when those before it are told.
    pub(crate) fn take(self, tell: impl FnOnce(&Mark) + Send + 'static) {
        let Self(mark) = self;
        let (progress, serial, after_all) = (mark.progress.clone(), mark.serial, mark.after_all);
        progress.line.ended(serial, after_all, move || tell(&mark));
    }
}

impl Session {
    /// Gives the devices all commands so far.
    pub(super) fn flush_queues(&mut self) {
        for id in std::mem::take(&mut self.unflushed) {
            if let Ok(queue) = self.queues.get_mut(id) {
                queue.flush();
            }
        }
    }

    /// Notes that a queue has commands that the device may not have been given.
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
                // The client is told how it ends by the event itself.
                last.follow(move |_| answer(&shared, Status::OK));
            }
            Some(Last::Native(last, mark)) => {
                queue.flush();
                // Nothing but this finish tells of its failure.
                answer_behind(shared, &last, mark, answer);
            }
            None => {
                let (marker, mark) = queue.marker()?;
                queue.flush();
                // A marker's own failure is that of a command before it, which has told of it.
                answer_behind(shared, &marker, mark, move |shared, _| answer(shared, Status::OK));
            }
        }
        Ok(())
    }
}

/// Answers a finish when the last command of its queue has ended, and the ends of all before it are told.
fn answer_behind(
    shared: Arc<Shared>,
    last: &device::Event,
    mark: Mark,
    answer: impl FnOnce(&Shared, Status) + Send + 'static,
) {
    let turn = mark.expect();
    last.on_complete(Box::new(move |status, _| {
        // One that waited for an event that failed was not refused: see `fail_in_order`.
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
        let profiles = call.properties.get() & PROFILING != 0;
        let queue = make().and_then(|device| {
            let times = TimesOf::from_wire(call.times.get()).ok_or(Status::INVALID_VALUE)?;
            Ok(Queue::new(device, profiles && times == TimesOf::Commands, meter))
        });
        if let Ok(queue) = &queue {
            lock(&self.shared.queues).insert(call.queue, queue.device.clone());
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
            // "clReleaseCommandQueue performs an implicit flush to issue any previously queued OpenCL commands."
            queue.flush();
            lock(&self.shared.queues).remove(&call.queue);
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
