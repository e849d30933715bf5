//! Command queues: each command is one call, sent and not waited for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use penstock_coherence::Access;
use penstock_coherence::{InPlace, QueueId};
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

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u64 = 1 << 0;
/// `CL_QUEUE_PROFILING_ENABLE`.
const PROFILING: u64 = 1 << 1;

/// Whether the program asked for a command's event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// It did not: the worker keeps no event, which is cheaper.
    Nothing,
    /// It did.
    Event,
    /// It did not, and expects what the command does to be done when the call returns: [`Queue::settle`].
    Settled,
}

/// Bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

/// A box in a buffer: `x` and width in bytes, the rest in rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rect {
    /// Where it starts.
    pub origin: [u64; 3],
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Bytes from slice to slice.
    pub slice_pitch: u64,
}

impl Rect {
    /// The bytes from the first to the last of a box of `region`.
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
    /// Whether each command has times, which only the device can tell.
    timed: bool,
    /// Whether markers have.
    profiles: bool,
    progress: Arc<Progress>,
    /// Barriers of an out-of-order queue, as far as they have not ended.
    barriers: Mutex<Vec<Event>>,
    /// Failures of commands that the program has no event of.
    failure: Arc<Failure>,
}

pub(crate) type Enqueued = Result<Option<Event>>;

impl Queue {
    /// `clCreateCommandQueueWithProperties`. `size` 0: not given.
    ///
    /// # Errors
    /// When the node is lost, or the device is not of the context.
    pub fn new(
        context: &Arc<Context>,
        device: &Arc<Device>,
        properties: u64,
        size: u32,
    ) -> Result<Arc<Self>> {
        Self::make(context, device, (properties, size), TimesOf::Commands)
    }

    /// An in-order queue of which only the times of markers can be asked for: all other commands are as those of a queue without times.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn timing_markers(context: &Arc<Context>, device: &Arc<Device>) -> Result<Arc<Self>> {
        Self::make(context, device, (PROFILING, 0), TimesOf::Markers)
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
        let in_order = properties & OUT_OF_ORDER == 0;
        let failure = place.session.watch_queue(id);
        let queue = Arc::new(Self {
            id,
            context: context.clone(),
            device: device.clone(),
            place: index,
            in_order,
            timed: properties & PROFILING != 0 && times == TimesOf::Commands,
            profiles: properties & PROFILING != 0,
            progress: Arc::default(),
            barriers: Mutex::default(),
            failure,
        });
        let sibling: Arc<dyn Sibling> = queue.clone();
        context.join(Arc::downgrade(&sibling));
        Ok(queue)
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its name on the wire.
    pub fn id(&self) -> Id<kind::Queue> {
        self.id
    }

    /// Whether its commands run in order.
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Whether markers have times.
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

    /// Its name in the state machine.
    pub(crate) fn name(&self) -> QueueId {
        QueueId(self.id.get())
    }

    /// `clFlush`: the worker sees all commands so far, and hands them to the device.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn flush(&self) -> Result<()> {
        self.session().send(&to_worker::Flush { queue: self.id }, &[], &[])?;
        self.session().flush()
    }

    /// `clFinish`: waits until all commands so far have ended.
    ///
    /// # Errors
    /// When the node is lost, or a command failed that the program has no event of.
    pub fn finish(&self) -> Result<()> {
        // A worker's answer knows nothing of what is still held back here.
        if !planted(Defect::SvmFinish) {
            order().wait_until_passed(&order().held_in(self.name()));
        }
        let issued = self.progress.issue();
        if issued.is_idle() && order().is_quiet() && self.session().is_usable() {
            // The worker has told the ends of all commands, and before them what failed: its answer would tell nothing.
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
        // Both are told now.
        let earlier = self.check();
        finished.and(earlier)
    }

    /// The failure of an earlier command that the program has no event of. To be returned, once, by every call that waits for the
    /// queue.
    ///
    /// # Errors
    /// There is one: the driver's code.
    pub fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), |status| Err(self.session().refused(status)))
    }

    /// Nobody holds the event of this command: if it fails, or has failed, [`Queue::check`] tells.
    pub fn report(&self, event: &Event) {
        event.report_to(&self.failure);
    }

    /// What comes later comes after this barrier. One without a wait list comes after all barriers before it.
    pub(crate) fn set_barrier(&self, barrier: &Event, is_listed: bool) {
        let mut barriers = self.open_barriers();
        if !is_listed {
            barriers.clear();
        }
        barriers.push(barrier.clone());
    }

    /// The barriers that have not ended, for what comes after them.
    pub(crate) fn barriers(&self) -> Vec<Weak<dyn Awaited>> {
        self.open_barriers().iter().map(Event::awaited).collect()
    }

    /// Whether a barrier has not ended, as far as is known without asking anybody.
    pub(crate) fn is_behind_barrier(&self) -> bool {
        !self.open_barriers().is_empty() && !planted(Defect::BarrierPassed)
    }

    fn open_barriers(&self) -> MutexGuard<'_, Vec<Event>> {
        let mut barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        barriers.retain(|barrier| barrier.known_status().is_none());
        barriers
    }

    /// Whether commands of the context may not follow those of this queue anyway.
    pub(crate) fn concerns_others(&self) -> bool {
        !self.in_order || self.context.has_several_queues()
    }

    /// Does `work` where the host may use a buffer's content at this moment: it shares the memory with the device, and
    /// everything that the command would have to wait for has ended. An event with times can only come from the device.
    /// No other thread enqueues meanwhile.
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
        // The machine decides below, under the lock. This look without it only saves the lock where the answer is no. A
        // build that plants defects leaves it out, or nobody would see what the machine's rule is for.
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

/// The event of a command that has ended already.
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
