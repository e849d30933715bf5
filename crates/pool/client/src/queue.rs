//! Command queues. Each command is one call, which is sent and not waited for.

use std::fmt;
use std::sync::{Arc, Weak};

use penstock_cl_sys::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE};
pub use penstock_coherence::Access;
use penstock_coherence::{InPlace, QueueId};
use penstock_process::{Guard, Lock};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, TimesOf, U32, U64};

use crate::arena::Part;
use crate::context::{Context, Sibling};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::issued::{Awaited, Progress};
use crate::memory::Memory;
use crate::order::order;
use crate::pool::Device;
use crate::session::Session;
use crate::session::failure::Failure;
use crate::summary::{self, Command, Reason};

/// What the program expects of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// No event: the worker keeps none, which is cheaper.
    Nothing,
    /// The event of the command.
    Event,
    /// No event, but the command's effect must be done when the call returns, see
    /// [`Queue::settle`].
    Settled,
}

/// A range of bytes in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Offset of the first byte.
    pub offset: u64,
    pub size: u64,
}

/// A box in a buffer. `x` and the width are in bytes, the other numbers in rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rect {
    pub origin: [u64; 3],
    /// Distance between rows in bytes, or 0 if the rows have no gaps.
    pub row_pitch: u64,
    /// Distance between slices in bytes, or 0 if the slices have no gaps.
    pub slice_pitch: u64,
}

impl Rect {
    /// Returns the range from the first to the last byte of a box of size `region`.
    pub(crate) fn reach(&self, [width, rows, slices]: [u64; 3]) -> Range {
        let row_pitch = if self.row_pitch == 0 { width } else { self.row_pitch };
        let slice_pitch = if self.slice_pitch == 0 { row_pitch * rows } else { self.slice_pitch };
        let at = |x: u64, y: u64, z: u64| x + y * row_pitch + z * slice_pitch;
        let [x, y, z] = self.origin;
        let size = at(width, rows.saturating_sub(1), slices.saturating_sub(1));
        Range { offset: at(x, y, z), size }
    }
}

/// A command queue of one device.
pub struct Queue {
    id: Id<kind::Queue>,
    context: Arc<Context>,
    device: Arc<Device>,
    place: usize,
    in_order: bool,
    /// Whether each command has times. Only the device can tell them.
    timed: bool,
    /// Whether markers have times.
    profiles: bool,
    progress: Arc<Progress>,
    /// Barriers of an out-of-order queue that have not ended.
    barriers: Lock<Vec<Event>>,
    /// The failure of a command without an event, which the program has not been told yet.
    failure: Arc<Failure>,
}

pub(crate) type Enqueued = Result<Option<Event>>;

impl Queue {
    /// `clCreateCommandQueueWithProperties`. `size` is 0 if the program gave none.
    ///
    /// # Errors
    /// If the node is lost, or the device does not belong to the context.
    pub fn new(
        context: &Arc<Context>,
        device: &Arc<Device>,
        properties: u64,
        size: u32,
    ) -> Result<Arc<Self>> {
        Self::make(context, device, (properties, size), TimesOf::Commands)
    }

    /// Makes an in-order queue in which only markers have times. All other commands cost as little
    /// as in a queue without times.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn timing_markers(context: &Arc<Context>, device: &Arc<Device>) -> Result<Arc<Self>> {
        Self::make(context, device, (CL_QUEUE_PROFILING_ENABLE, 0), TimesOf::Markers)
    }

    fn make(
        context: &Arc<Context>,
        device: &Arc<Device>,
        (properties, size): (u64, u32),
        times: TimesOf,
    ) -> Result<Arc<Self>> {
        let place = context.place_of(device);
        let Some((index, place)) =
            place.and_then(|index| Some((index, context.places().get(index)?)))
        else {
            return Err(Error::Config("the device does not belong to the context".into()));
        };
        let id = crate::ids::next_id();
        let call = to_worker::CreateQueue {
            queue: id,
            context: place.id,
            device: U32::new(device.index()),
            properties: U64::new(properties),
            size: U32::new(size),
            times: U32::new(times as u32),
        };
        place.session.send(&call, &[], &[])?;
        let in_order = properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        let failure = place.session.watch_queue(id);
        let queue = Arc::new(Self {
            id,
            context: context.clone(),
            device: device.clone(),
            place: index,
            in_order,
            timed: properties & CL_QUEUE_PROFILING_ENABLE != 0 && times == TimesOf::Commands,
            profiles: properties & CL_QUEUE_PROFILING_ENABLE != 0,
            progress: Arc::default(),
            barriers: Lock::default(),
            failure,
        });
        let sibling: Arc<dyn Sibling> = queue.clone();
        context.join(Arc::downgrade(&sibling));
        Ok(queue)
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub fn id(&self) -> Id<kind::Queue> {
        self.id
    }

    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Returns whether markers have times.
    pub(crate) fn profiles(&self) -> bool {
        self.profiles
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.device.session()
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns the queue's name in the state machine.
    pub(crate) fn name(&self) -> QueueId {
        QueueId(self.id.get())
    }

    /// `clFlush`: the worker receives all earlier commands and hands them to the device.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn flush(&self) -> Result<()> {
        self.session().send(&to_worker::Flush { queue: self.id }, &[], &[])?;
        self.session().flush()
    }

    /// `clFinish`: waits until all earlier commands have ended.
    ///
    /// # Errors
    /// If the node is lost, or a command without an event has failed.
    pub fn finish(&self) -> Result<()> {
        self.waiting(Reason::Finish, || self.finish_all())
    }

    /// Runs `work`, whose waits count as one wait for `reason` in the summary of the run.
    pub fn waiting<R>(&self, reason: Reason, work: impl FnOnce() -> R) -> R {
        summary::within(self.session().tally(), reason, work)
    }

    /// Counts a map of the program, for the summary of the run.
    pub fn count_map(&self) {
        self.count(Command::Map, 0);
    }

    /// Counts a command that moves these bytes without a call.
    pub(crate) fn count(&self, command: Command, bytes: u64) {
        if let Some(tally) = self.session().tally() {
            tally.count(command, bytes);
        }
    }

    fn finish_all(&self) -> Result<()> {
        // The worker does not know the commands that are still held back here.
        if !planted(Defect::SvmFinish) {
            order().wait_until_passed(&order().held_in(self.name()));
        }
        let issued = self.progress.issue();
        if issued.is_idle() && order().is_quiet() && self.session().is_usable() {
            // The worker has told the ends of all commands, and before them every failure. It has
            // nothing new to answer.
            drop(issued);
            return self.check();
        }
        let serial = issued.issued();
        let behind = order().behind_queue(self.name());
        let pending =
            self.session().request(to_worker::Finish { request: Id::NONE, queue: self.id }, &[]);
        drop(issued);
        let finished = pending.wait();
        self.progress.take_for_ended_up_to(serial);
        if finished.is_ok() {
            self.progress.reach(serial);
        }
        for event in
            behind.iter().filter(|_| !planted(Defect::FinishEarly) && !planted(Defect::SvmFinish))
        {
            _ = event.wait();
        }
        // A failure from the worker's answer and an earlier one count as told now.
        let earlier = self.check();
        finished.and(earlier)
    }

    /// Returns the failure of an earlier command without an event, once. Every call that waits for
    /// the queue returns this error to the program.
    ///
    /// # Errors
    /// The driver's code of that failure.
    pub fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), |status| Err(self.session().refused(status)))
    }

    /// Has [`Queue::check`] report a failure of this command, because the program does not hold its
    /// event.
    pub fn report(&self, event: &Event) {
        event.report_to(&self.failure);
    }

    /// Notes a barrier that all later commands come after. A barrier without a wait list comes
    /// after all earlier barriers and replaces them.
    pub(crate) fn set_barrier(&self, barrier: &Event, is_listed: bool) {
        let mut barriers = self.open_barriers();
        if !is_listed {
            barriers.clear();
        }
        barriers.push(barrier.clone());
    }

    /// Returns the barriers that have not ended, which later commands come after.
    pub(crate) fn barriers(&self) -> Vec<Weak<dyn Awaited>> {
        self.open_barriers().iter().map(Event::awaited).collect()
    }

    /// Returns whether a barrier has not ended, as far as this process knows without asking.
    pub(crate) fn is_behind_barrier(&self) -> bool {
        !self.open_barriers().is_empty() && !planted(Defect::BarrierPassed)
    }

    fn open_barriers(&self) -> Guard<'_, Vec<Event>> {
        let mut barriers = self.barriers.lock();
        barriers.retain(|barrier| barrier.known_status().is_none());
        barriers
    }

    /// Returns whether other commands of the context may run without following those of this queue.
    pub(crate) fn concerns_others(&self) -> bool {
        !self.in_order || self.context.has_several_queues()
    }

    /// Runs `work` if the host may use the content of a buffer now: host and device share the
    /// memory, and everything that the command would wait for has ended. Otherwise returns `None`.
    /// No other thread enqueues while `work` runs. A command whose event needs times is never done
    /// in place, because only the device has times.
    pub(crate) fn in_place<T>(
        &self,
        memory: &Memory,
        waits: &[Event],
        want: Want,
        work: impl FnOnce(&Part, u64) -> T,
    ) -> Option<T> {
        let (part, origin) = memory.shared_place()?;
        if want == Want::Event && self.timed {
            return None;
        }
        // The machine decides below, under the lock. This check without the lock only saves taking
        // it if the answer is no. Builds that plant defects leave the check out, because it would
        // hide the effect of the machine's rule.
        if !self.progress.may_be_idle() && penstock_trial::planted_name().is_none() {
            return None;
        }
        let has_ended = |event: &Event| event.known_status() == Some(Status::OK);
        let issued = self.progress.issue();
        let copy = InPlace {
            queue: self.name(),
            in_order: self.in_order,
            context: self.context.name(),
            is_idle: issued.is_idle(),
            waits_ended: waits.iter().all(has_ended),
        };
        let may = order().may_copy(&copy) && self.session().is_usable();
        may.then(|| work(part, origin))
    }
}

/// Returns the event, if one is wanted, of a command that has ended already.
pub(crate) fn ended(want: Want) -> Option<Event> {
    (want == Want::Event).then(|| Event::ended(Status::OK))
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.context.leave();
        order().release_queue(self.name());
        self.session().forget_queue(self.id);
        // A lost session has released everything.
        _ = self.session().send(&to_worker::ReleaseQueue { queue: self.id }, &[], &[]);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("id", &self.id)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
