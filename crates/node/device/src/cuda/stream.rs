//! Streams: commands in order. The thread that enqueues a command issues it to the device, or the
//! submitter if the command must wait. The lander does the host's work when the device is done.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use penstock_cuda_sys::driver::{CU_STREAM_NON_BLOCKING, CUstream, CUstream_st};
use penstock_process::{Guard, Lock, Signal};
use penstock_wire::status::Status;

use super::address::Address;
use super::clock::{self, Base, Stamp};
use super::command::{Command, Given, Kept, Work};
use super::device::Device;
use super::driver::check;
use super::event::{Callbacks, Event, Wait};
use super::library::Kits;
use super::slot::Slot;
use crate::driver::Failed;
use crate::event::{EventDriver, Times};
use crate::staging::Staged;

pub(super) struct Stream {
    id: u64,
    /// Number of the context.
    context: u64,
    device: &'static Device,
    raw: Address<CUstream_st>,
    /// Reference point of times; `None` if events have no times.
    base: Option<Lock<Base>>,
    /// What NVIDIA's libraries keep for the stream.
    kits: Lock<Kits>,
    order: Lock<Order>,
    /// Hears of commands that the submitter could not issue.
    failed: OnceLock<Failed>,
    /// Signalled when a command is enqueued, and when all have been issued.
    ordered: Signal,
    air: Lock<Air>,
    /// Signalled when a flight is added, and when all have landed.
    flown: Signal,
}

/// Commands that have not been issued to the device.
#[derive(Default)]
struct Order {
    pending: VecDeque<Command>,
    /// Whether the submitter holds a command.
    submitting: bool,
    has_submitter: bool,
    closed: bool,
    /// First failure of a command without an event that the submitter issued.
    failure: Option<Status>,
}

/// Issued work that somebody waits for.
#[derive(Default)]
struct Air {
    flights: VecDeque<Flight>,
    landing: bool,
    has_lander: bool,
    closed: bool,
}

/// A point in the stream, and what the lander does when the device reaches it.
struct Flight {
    stamp: Arc<Stamp>,
    landing: Option<Landing>,
    event: Option<(Arc<Event>, Begun)>,
    /// Reads of other streams that the device has finished, but whose bytes may still be in slots.
    /// This flight's end is reported after theirs.
    after: Vec<Arc<Event>>,
}

/// Host memory that the device has finished with when it reaches a point.
#[allow(dead_code, reason = "some memory is only kept to be dropped")]
pub(super) enum Landing {
    /// Bytes that the device has read.
    Written(Staged),
    /// A slot whose bytes the device has read.
    Sent(Slot),
    /// Bytes that the device has filled.
    Read(Arc<Lock<Staged>>),
    /// A slot that the device has filled, for this range of the bytes.
    Received { slot: Slot, to: Arc<Lock<Staged>>, range: Range<usize> },
}

impl Landing {
    /// Copies the bytes of a [`Landing::Received`] from its slot to the reader's bytes.
    fn copy(&self) {
        if let Self::Received { slot, to, range } = self {
            let mut to = to.lock();
            // If another part of the read failed, the reader may already have taken its bytes away.
            if let Some(to) = to.get_mut(range.clone()) {
                slot.empty(to);
            }
        }
    }
}

/// Times at which a command was begun.
#[derive(Clone, Default)]
pub(super) struct Begun {
    queued: u64,
    submitted: u64,
    start: Option<Arc<Stamp>>,
}

/// Arguments of an enqueue beside the work itself.
pub(super) struct Wish {
    pub(super) waits: Vec<Arc<Event>>,
    pub(super) event: bool,
    pub(super) keep: [Kept; 2],
}

/// How often the lander of a closed stream checks whether the submitter has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    pub(super) fn new(
        context: u64,
        device: &'static Device,
        profiles: bool,
    ) -> Result<Arc<Self>, Status> {
        device.enter()?;
        let mut raw: CUstream = std::ptr::null_mut();
        // SAFETY: the output location outlives the call.
        check(unsafe { (device.cuda().cuStreamCreate)(&mut raw, CU_STREAM_NON_BLOCKING) })?;
        let base = if profiles { Some(Lock::new(Base::of(device, raw)?)) } else { None };
        Ok(Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            context,
            device,
            raw: Address::new(raw),
            base,
            kits: Lock::default(),
            order: Lock::default(),
            failed: OnceLock::new(),
            ordered: Signal::new(),
            air: Lock::default(),
            flown: Signal::new(),
        }))
    }

    pub(super) fn device(&self) -> &'static Device {
        self.device
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw.get()
    }

    pub(super) fn kits(&self) -> &Lock<Kits> {
        &self.kits
    }

    pub(super) fn on_failure(&self, failed: Failed) {
        // `crate::driver` calls this once.
        _ = self.failed.set(failed);
    }

    fn order(&self) -> Guard<'_, Order> {
        self.order.lock()
    }

    fn air(&self) -> Guard<'_, Air> {
        self.air.lock()
    }

    pub(super) fn enqueue(
        self: &Arc<Self>,
        work: Work,
        wish: Wish,
    ) -> Result<Option<Arc<Event>>, Status> {
        if wish.waits.iter().any(|event| event.status().is_error()) {
            return Err(Status::WAIT_LIST_FAILED);
        }
        self.device.enter()?;
        let event = wish.event.then(|| Event::of_command(self.context, self.id));
        let queued = if self.base.is_some() { clock::now() } else { 0 };
        let mut command = Command {
            work,
            waits: wish.waits,
            event: event.clone(),
            _keep: wish.keep,
            queued,
            begun: None,
        };
        // The lock is held while the command is issued, so that no other gets ahead of it. Nobody
        // listens to the event yet, so no callback runs meanwhile.
        let mut order = self.order();
        let given = !order.is_busy() && self.give(&mut command, false)?;
        if !given {
            self.start_submitter(&mut order)?;
            order.pending.push_back(command);
            self.ordered.notify_all();
        }
        Ok(event)
    }

    /// Issues a command; returns false if it must wait for an event or a slot. The context is
    /// current.
    fn give(self: &Arc<Self>, command: &mut Command, may_wait: bool) -> Result<bool, Status> {
        // First check the wait list: a command that cannot run must not be begun.
        let (mut stamps, mut after) = (Vec::new(), Vec::new());
        for event in &command.waits {
            match event.wait_in(self.id) {
                Wait::Over => {}
                Wait::Failed => return Err(Status::WAIT_LIST_FAILED),
                Wait::Stamp(stamp, lands) => {
                    stamps.push(stamp);
                    after.extend(lands.then(|| event.clone()));
                }
                Wait::Host => return Ok(false),
            }
        }
        if command.begun.is_none() {
            for stamp in stamps {
                // SAFETY: stream and event live; the stream waits for what is recorded now.
                check(unsafe {
                    (self.device.cuda().cuStreamWaitEvent)(self.raw(), stamp.raw(), 0)
                })?;
            }
            command.begun = Some(self.begin(command)?);
        }
        let landing = match command.work.give(self, may_wait)? {
            Given::All(landing) => landing,
            Given::NoRoom => return Ok(false),
        };
        let event = command.event.take();
        if landing.is_none() && event.is_none() && after.is_empty() {
            return Ok(true);
        }
        let timed = self.base.is_some() && event.is_some();
        let stamp = Stamp::record(self.device, self.raw(), timed);
        let stamp = stamp.inspect_err(|_| self.settle())?;
        let begun = command.begun.take().unwrap_or_default();
        let lands = matches!(landing, Some(Landing::Received { .. }));
        if let Some(event) = &event {
            event.sent(stamp.clone(), lands);
        }
        self.fly(Flight { stamp, landing, event: event.map(|event| (event, begun)), after })?;
        Ok(true)
    }

    fn begin(&self, command: &Command) -> Result<Begun, Status> {
        if self.base.is_none() || command.event.is_none() {
            return Ok(Begun::default());
        }
        let start = Stamp::record(self.device, self.raw(), true)?;
        Ok(Begun { queued: command.queued, submitted: clock::now(), start: Some(start) })
    }

    /// Keeps memory until the stream reaches its current end.
    pub(super) fn fly_alone(self: &Arc<Self>, landing: Landing) -> Result<(), Status> {
        let stamp = Stamp::record(self.device, self.raw(), false);
        let stamp = stamp.inspect_err(|_| self.settle())?;
        self.fly(Flight { stamp, landing: Some(landing), event: None, after: Vec::new() })
    }

    /// Adds a flight and starts the lander if there is none.
    fn fly(self: &Arc<Self>, flight: Flight) -> Result<(), Status> {
        let mut air = self.air();
        if !air.has_lander {
            let stream = self.clone();
            if penstock_process::start("penstock-cuda-end", move || stream.land_all()).is_err() {
                self.settle();
                return Err(Status::OUT_OF_HOST_MEMORY);
            }
            air.has_lander = true;
        }
        air.flights.push_back(flight);
        self.flown.notify_all();
        Ok(())
    }

    /// Waits until the device has finished with the host memory of all that was issued. The caller
    /// cannot wait for the memory of one command, and frees that memory.
    fn settle(&self) {
        // SAFETY: the stream lives. If the call fails, nothing runs in the context any more.
        let _ = check(unsafe { (self.device.cuda().cuStreamSynchronize)(self.raw()) });
    }

    fn start_submitter(self: &Arc<Self>, order: &mut Order) -> Result<(), Status> {
        if !order.has_submitter {
            let stream = self.clone();
            penstock_process::start("penstock-cuda-submit", move || stream.submit_all())
                .map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
            order.has_submitter = true;
        }
        Ok(())
    }

    /// Body of the submitter thread.
    fn submit_all(self: Arc<Self>) {
        while let Some(mut command) = self.next_command() {
            let event = command.event.clone();
            let given = self.submit(&mut command);
            drop(command);
            // Nobody waits for the end of a command before it is told or a later one is issued.
            // A failed event has been told already.
            let refused = given.err().filter(|status| *status != Status::WAIT_LIST_FAILED);
            if let (Some(status), Some(failed)) = (refused, self.failed.get()) {
                failed(status);
            }
            let callbacks = match (given, event) {
                (Err(status), Some(event)) => Some(event.end(status, Times::default())),
                (Err(status), None) => {
                    self.order().failure.get_or_insert(status);
                    None
                }
                (Ok(()), _) => None,
            };
            self.order().submitting = false;
            self.ordered.notify_all();
            if let Some(callbacks) = callbacks {
                callbacks.call();
            }
        }
        // The lander may be waiting for a flight of this thread.
        let _air = self.air();
        self.flown.notify_all();
    }

    fn next_command(&self) -> Option<Command> {
        let mut order = self.order();
        loop {
            if let Some(command) = order.pending.pop_front() {
                order.submitting = true;
                return Some(command);
            }
            if order.closed {
                return None;
            }
            order = self.ordered.wait(order);
        }
    }

    fn submit(self: &Arc<Self>, command: &mut Command) -> Result<(), Status> {
        self.device.enter()?;
        loop {
            for event in &command.waits {
                event.wait_until_sent();
            }
            // This waits for a slot itself, so false means that an event must be waited for again.
            if self.give(command, true)? {
                return Ok(());
            }
        }
    }

    /// Body of the lander thread.
    fn land_all(self: Arc<Self>) {
        let entered = self.device.enter();
        while let Some(flight) = self.next_flight() {
            let reached = entered.and_then(|()| flight.stamp.wait());
            if let (Ok(()), Some(landing)) = (reached, &flight.landing) {
                landing.copy();
            }
            drop(flight.landing);
            for event in &flight.after {
                event.wait_until_ended();
            }
            let callbacks =
                flight.event.map(|(event, begun)| self.end(&event, &begun, &flight.stamp, reached));
            self.air().landing = false;
            self.flown.notify_all();
            if let Some(callbacks) = callbacks {
                callbacks.call();
            }
        }
    }

    fn next_flight(&self) -> Option<Flight> {
        let mut air = self.air();
        loop {
            if let Some(flight) = air.flights.pop_front() {
                air.landing = true;
                return Some(flight);
            }
            if air.closed {
                // The submitter may add more flights. `order` is asked without `air`'s lock,
                // because the submitter takes `air` while it holds `order`.
                drop(air);
                let is_over = self.order().is_over();
                air = self.air();
                if is_over && air.flights.is_empty() {
                    return None;
                }
                if !is_over && air.flights.is_empty() {
                    // The submitter may have ended in between, so this wait is bounded.
                    let waited = self.flown.wait_timeout(air, LOOK_EVERY);
                    air = waited.0;
                }
            } else {
                air = self.flown.wait(air);
            }
        }
    }

    fn end(
        &self,
        event: &Arc<Event>,
        begun: &Begun,
        stamp: &Arc<Stamp>,
        reached: Result<(), Status>,
    ) -> Callbacks {
        if let Err(status) = reached {
            return event.end(status, Times::default());
        }
        let times = self.base.as_ref().zip(begun.start.as_ref()).and_then(|(base, start)| {
            let mut base = base.lock();
            let (started, ended) = base.times(start, stamp).ok()?;
            let (queued, submitted) = (begun.queued, begun.submitted);
            // The two clocks agree to some microseconds; the order of the phases is certain.
            let started = started.max(submitted);
            let ended = ended.max(started);
            Some(Times { queued, submitted, started, ended, completed: ended })
        });
        event.end(Status::OK, times.unwrap_or_default())
    }

    /// Blocks until all commands enqueued so far have ended.
    pub(super) fn finish(&self) -> Result<(), Status> {
        {
            let mut order = self.order();
            while order.is_busy() {
                order = self.ordered.wait(order);
            }
        }
        self.device.enter()?;
        // SAFETY: the stream lives.
        let finished = check(unsafe { (self.device.cuda().cuStreamSynchronize)(self.raw()) });
        {
            let mut air = self.air();
            while air.landing || !air.flights.is_empty() {
                air = self.flown.wait(air);
            }
        }
        finished?;
        self.order().failure.take().map_or(Ok(()), Err)
    }

    /// Closes the stream: nothing more is enqueued. Earlier commands still run.
    pub(super) fn close(&self) {
        self.order().closed = true;
        self.ordered.notify_all();
        self.air().closed = true;
        self.flown.notify_all();
    }
}

impl Order {
    /// Whether a command that is enqueued now would have to wait for others.
    fn is_busy(&self) -> bool {
        self.submitting || !self.pending.is_empty()
    }

    /// Whether no command can come any more.
    fn is_over(&self) -> bool {
        self.closed && !self.is_busy()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        std::mem::take(self.kits.get_mut()).end(self.device, self.raw);
    }
}
