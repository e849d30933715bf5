//! Streams: commands in their order, given to the device from the thread that enqueues them or, where they must wait, by the
//! submitter; and what is left to do when the device is through with them, by the lander.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use penstock_cl_sys::CL_COMPLETE;
use penstock_cuda_sys::driver::{CU_STREAM_NON_BLOCKING, CUstream, CUstream_st};
use penstock_wire::status::Status;

use super::clock::{self, Base, Stamp};
use super::command::{Command, Given, Work};
use super::device::Device;
use super::driver::check;
use super::event::{Callbacks, Event, Times, Wait};
use super::memory::Memory;
use super::object::{Address, Object, Ref};
use super::pinned::Slot;

/// A stream.
pub(super) struct Stream {
    id: u64,
    device: &'static Object<Device>,
    raw: Address<CUstream_st>,
    /// Where events have times: a point to count from.
    base: Option<Mutex<Base>>,
    order: Mutex<Order>,
    /// Something was enqueued, or all has been given to the device.
    ordered: Condvar,
    air: Mutex<Air>,
    /// Something flies, or all has landed.
    flown: Condvar,
}

/// What the device has not been given yet.
#[derive(Default)]
struct Order {
    pending: VecDeque<Command>,
    /// The submitter has one in its hands.
    submitting: bool,
    has_submitter: bool,
    closed: bool,
    /// First failure of a command without an event that the submitter gave.
    failure: Option<Status>,
}

/// What the device has been given and somebody waits for.
#[derive(Default)]
struct Air {
    flights: VecDeque<Flight>,
    landing: bool,
    has_lander: bool,
    closed: bool,
}

/// A point in the stream, and what is to be done when it is reached.
struct Flight {
    stamp: Arc<Stamp>,
    landing: Option<Landing>,
    event: Option<(Ref<Event>, Begun)>,
    /// Reads of other streams that the device has done before, but whose bytes may still be in their slots: who hears of the end of
    /// this must find theirs.
    after: Vec<Ref<Event>>,
}

/// Pinned memory that the device is through with.
pub(super) struct Landing {
    pub(super) slot: Slot,
    /// Where its first bytes go, and how many.
    pub(super) to: Option<(Address<u8>, usize)>,
}

/// When a command was begun.
#[derive(Clone, Default)]
pub(super) struct Begun {
    queued: u64,
    submitted: u64,
    start: Option<Arc<Stamp>>,
}

/// What the caller of an enqueue asks for beside the work itself.
pub(super) struct Wish {
    pub(super) command: u32,
    pub(super) waits: Vec<Ref<Event>>,
    pub(super) event: bool,
    pub(super) keep: [Option<Ref<Memory>>; 2],
}

/// How often the lander of a stream that is no longer used looks whether the submitter has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    pub(super) fn new(
        device: &'static Object<Device>,
        profiles: bool,
    ) -> Result<Arc<Self>, Status> {
        device.enter()?;
        let mut raw: CUstream = std::ptr::null_mut();
        // SAFETY: the place lives through the call.
        check(unsafe { (device.cuda().cuStreamCreate)(&mut raw, CU_STREAM_NON_BLOCKING) })?;
        let base = if profiles { Some(Mutex::new(Base::of(device, raw)?)) } else { None };
        Ok(Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            raw: Address::new(raw),
            base,
            order: Mutex::default(),
            ordered: Condvar::new(),
            air: Mutex::default(),
            flown: Condvar::new(),
        }))
    }

    pub(super) fn device(&self) -> &'static Device {
        self.device
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw.get()
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn air(&self) -> MutexGuard<'_, Air> {
        self.air.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a command.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        work: Work,
        wish: Wish,
    ) -> Result<Option<Ref<Event>>, Status> {
        self.device.enter()?;
        let event = wish.event.then(|| Event::of_command(wish.command, self.id));
        let queued = if self.base.is_some() { clock::now() } else { 0 };
        let mut command = Command {
            work,
            waits: wish.waits,
            event: event.clone(),
            _keep: wish.keep,
            queued,
            begun: None,
        };
        // Held while the device is given the command, so that no other one gets before it. Nobody listens to the event yet, so
        // no callback runs in here.
        let mut order = self.order();
        let given = !order.is_busy() && self.give(&mut command, false)?;
        if !given {
            self.start_submitter(&mut order)?;
            order.pending.push_back(command);
            self.ordered.notify_all();
        }
        Ok(event)
    }

    /// Gives the device a command, if nothing is in its way. The device's context is current.
    fn give(self: &Arc<Self>, command: &mut Command, may_wait: bool) -> Result<bool, Status> {
        // Before anything else: what can not run must not have begun.
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
                // SAFETY: stream and event live; the stream keeps to what is recorded now.
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
        let stamp = Stamp::record(self.device, self.raw(), self.base.is_some() && event.is_some())?;
        let begun = command.begun.take().unwrap_or_default();
        let lands = landing.as_ref().is_some_and(|landing| landing.to.is_some());
        let callbacks = event.as_ref().map(|event| event.sent(stamp.clone(), lands));
        self.fly(Flight { stamp, landing, event: event.map(|event| (event, begun)), after })?;
        if let Some(callbacks) = callbacks {
            callbacks.call();
        }
        Ok(true)
    }

    fn begin(&self, command: &Command) -> Result<Begun, Status> {
        if self.base.is_none() || command.event.is_none() {
            return Ok(Begun::default());
        }
        let start = Stamp::record(self.device, self.raw(), true)?;
        Ok(Begun { queued: command.queued, submitted: clock::now(), start: Some(start) })
    }

    /// Lets a slot fly to the end of what the stream has now.
    pub(super) fn fly_slot(self: &Arc<Self>, landing: Landing) -> Result<(), Status> {
        let stamp = Stamp::record(self.device, self.raw(), false)?;
        self.fly(Flight { stamp, landing: Some(landing), event: None, after: Vec::new() })
    }

    /// Notes a flight, and sees to it that somebody lands it.
    fn fly(self: &Arc<Self>, flight: Flight) -> Result<(), Status> {
        let mut air = self.air();
        if !air.has_lander {
            let stream = self.clone();
            let thread = std::thread::Builder::new().name("penstock-cuda-end".to_owned());
            thread.spawn(move || stream.land_all()).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
            air.has_lander = true;
        }
        air.flights.push_back(flight);
        self.flown.notify_all();
        Ok(())
    }

    fn start_submitter(self: &Arc<Self>, order: &mut Order) -> Result<(), Status> {
        if !order.has_submitter {
            let stream = self.clone();
            let thread = std::thread::Builder::new().name("penstock-cuda-submit".to_owned());
            thread.spawn(move || stream.submit_all()).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
            order.has_submitter = true;
        }
        Ok(())
    }

    /// The submitter.
    fn submit_all(self: Arc<Self>) {
        while let Some(mut command) = self.next_command() {
            let event = command.event.clone();
            let given = self.submit(&mut command);
            drop(command);
            let callbacks = match (given, event) {
                (Err(status), Some(event)) => Some(event.end(status.0, None)),
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
        // The lander may wait for what this thread would have let fly.
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
            order = self.ordered.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn submit(self: &Arc<Self>, command: &mut Command) -> Result<(), Status> {
        self.device.enter()?;
        loop {
            for event in &command.waits {
                event.wait_until_sent();
            }
            // Waits for room; so what is not given waits for an event again.
            if self.give(command, true)? {
                return Ok(());
            }
        }
    }

    /// The lander.
    fn land_all(self: Arc<Self>) {
        let entered = self.device.enter();
        while let Some(flight) = self.next_flight() {
            let reached = entered.and_then(|()| flight.stamp.wait());
            if let (Ok(()), Some(Landing { slot, to: Some((to, bytes)) })) =
                (reached, &flight.landing)
            {
                // SAFETY: the device has written so many bytes to the slot; the command's memory has room for them until its event
                // ends.
                unsafe { to.get().copy_from_nonoverlapping(slot.address(), *bytes) };
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
                // What the submitter has left still comes. Asked without the lock, which it takes within its own.
                drop(air);
                let is_over = self.order().is_over();
                air = self.air();
                if is_over && air.flights.is_empty() {
                    return None;
                }
                if !is_over && air.flights.is_empty() {
                    // The submitter may have ended in between, so not for ever.
                    let waited = self.flown.wait_timeout(air, LOOK_EVERY);
                    air = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            } else {
                air = self.flown.wait(air).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn end(
        &self,
        event: &Ref<Event>,
        begun: &Begun,
        stamp: &Arc<Stamp>,
        reached: Result<(), Status>,
    ) -> Callbacks {
        if let Err(status) = reached {
            return event.end(status.0, None);
        }
        let times = self.base.as_ref().zip(begun.start.as_ref()).and_then(|(base, start)| {
            let mut base = base.lock().unwrap_or_else(PoisonError::into_inner);
            let (started, ended) = base.times(start, stamp).ok()?;
            let (queued, submitted) = (begun.queued, begun.submitted);
            // The two clocks agree to some microseconds; the order of the phases is certain.
            let started = started.max(submitted);
            Some(Times { queued, submitted, started, ended: ended.max(started) })
        });
        event.end(CL_COMPLETE, times)
    }

    /// Blocks until all commands so far have ended.
    pub(super) fn finish(&self) -> Result<(), Status> {
        {
            let mut order = self.order();
            while order.is_busy() {
                order = self.ordered.wait(order).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.device.enter()?;
        // SAFETY: the stream lives.
        let finished = check(unsafe { (self.device.cuda().cuStreamSynchronize)(self.raw()) });
        {
            let mut air = self.air();
            while air.landing || !air.flights.is_empty() {
                air = self.flown.wait(air).unwrap_or_else(PoisonError::into_inner);
            }
        }
        finished?;
        self.order().failure.take().map_or(Ok(()), Err)
    }

    /// No more is enqueued. What was is still done.
    pub(super) fn close(&self) {
        self.order().closed = true;
        self.ordered.notify_all();
        self.air().closed = true;
        self.flown.notify_all();
    }
}

impl Order {
    /// Whether something is before what is enqueued now.
    fn is_busy(&self) -> bool {
        self.submitting || !self.pending.is_empty()
    }

    /// Whether nothing comes any more.
    fn is_over(&self) -> bool {
        self.closed && !self.is_busy()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: the stream is ours, and no thread has it any more. The device still does what it was given.
            let _ = check(unsafe { (self.device.cuda().cuStreamDestroy)(self.raw()) });
        }
    }
}
