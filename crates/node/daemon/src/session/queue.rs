//! What the session knows of a queue: whether commands are outstanding, and which one is the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_device as device;
use penstock_device::Want;
use penstock_link::{Body, Outbox};
use penstock_process::Lock;
use penstock_wire::calls::to_client;
use penstock_wire::id::kind;
use penstock_wire::limits::WAITS_PER_COMMAND;
use penstock_wire::{I32, Id, Status};

use super::end_order::EndOrder;
use super::event::Event;
use super::flights::Flights;
use super::launches::Traits;
use super::send_gate::SendGate;
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
    /// Its device's bit at the gate before launches.
    pub(crate) turn: u64,
    /// What its commands are.
    pub(crate) work: Traits,
    /// Number of the last command given to the device.
    serial: u64,
    /// Number of the last command that may use memory, or that waits for something outside the
    /// queue. Later commands are markers and barriers.
    working: u64,
    /// Number of the last command before the last finish.
    finished: u64,
    /// The last command that is known to have ended together with all before it.
    reached: Arc<Progress>,
    /// Event of an in-order queue's last command, if it has one; a finish can follow it.
    last: Option<LastCommand>,
    /// Reads in place: later commands must not change the memory before it is sent.
    sending: Vec<Arc<SendGate>>,
    /// First failure of a command without an event that the client does not know yet.
    failure: Option<Status>,
    /// Whether commands were given to the driver since the last flush.
    pub(crate) dirty: bool,
    /// How often the next command counts in addition, because of its wait list.
    extra: u64,
    /// Number of the last marker that [`Queue::mark_flight`] made.
    marked: u64,
}

/// The event of an in-order queue's last command.
pub(super) enum LastCommand {
    /// An event that the client knows.
    Event(Arc<Event>),
    /// An event that only the driver knows.
    Native(device::Event, QueuePosition),
}

/// How far a queue has come.
pub(crate) struct Progress {
    reached: AtomicU64,
    /// Number of the last command.
    last: AtomicU64,
    flights: Arc<Flights>,
    /// Counts how long the device is in use.
    meter: Option<Arc<Meter>>,
    /// The last command given to the device, and whether the meter runs for this queue.
    given: Lock<(u64, bool)>,
    /// Ends that are still to be reported.
    ends: EndOrder,
}

impl Progress {
    fn new(meter: Option<Arc<Meter>>, flights: Arc<Flights>) -> Self {
        Self {
            reached: AtomicU64::new(0),
            last: AtomicU64::new(0),
            flights,
            meter,
            given: Lock::default(),
            ends: EndOrder::default(),
        }
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
        let before = self.reached.fetch_max(serial, Ordering::AcqRel);
        self.flights.ended(serial.saturating_sub(before));
        let reached = before.max(serial);
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
        let (last, reached) = (*self.last.get_mut(), *self.reached.get_mut());
        self.flights.ended(last.saturating_sub(reached));
        let given = self.given.get_mut();
        if let (Some(meter), true) = (&self.meter, given.1) {
            meter.end();
        }
    }
}

impl Queue {
    pub(super) fn new(
        device: device::Queue,
        timed: bool,
        meter: Option<Arc<Meter>>,
        turn: u64,
        work: Traits,
        flights: Arc<Flights>,
    ) -> Self {
        Self {
            turn,
            work,
            in_order: !device.is_out_of_order(),
            timed,
            device,
            serial: 0,
            working: 0,
            finished: 0,
            reached: Arc::new(Progress::new(meter, flights)),
            last: None,
            sending: Vec::new(),
            failure: None,
            dirty: false,
            extra: 0,
            marked: 0,
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

    /// Returns whether the host may write memory in the turn of the next command: the queue is in
    /// order, and the commands that have not ended are only markers, whose ends do not depend on
    /// memory.
    pub(crate) fn can_be_written(&self) -> bool {
        self.in_order
            && self.reached.reached.load(Ordering::Acquire) >= self.working
            && self.sending.iter().all(|sending| sending.is_sent())
    }

    /// Numbers a command that was given to the device. The mark reports its end.
    pub(crate) fn count(&mut self) -> QueuePosition {
        let mark = self.count_marker();
        self.working = self.serial;
        mark
    }

    /// As [`Queue::count`], for a marker or barrier that waits only for commands of its queue.
    pub(crate) fn count_marker(&mut self) -> QueuePosition {
        let count = 1 + std::mem::take(&mut self.extra);
        self.serial += count;
        self.reached.last.store(self.serial, Ordering::Relaxed);
        self.reached.flights.began(count);
        self.dirty = true;
        self.last = None;
        self.reached.give(self.serial);
        QueuePosition {
            progress: self.reached.clone(),
            serial: self.serial,
            after_all: self.in_order,
        }
    }

    /// Notes the length of the next command's wait list.
    pub(crate) fn weigh(&mut self, waits: usize) {
        self.extra = (waits / WAITS_PER_COMMAND) as u64;
    }

    /// Has the ends of all commands so far noted, also of those without an event, by a marker
    /// behind them. Returns `false` if that is not possible.
    pub(super) fn mark_flight(&mut self) -> bool {
        if self.can_be_read() || self.marked == self.serial {
            return true;
        }
        let Ok((marker, mark)) = self.marker() else { return false };
        self.marked = self.serial;
        let turn = mark.expect();
        marker.on_complete(Box::new(move |_, _| turn.take(QueuePosition::reach)));
        true
    }

    /// Returns whether the next command needs an event.
    pub(crate) fn want(&self, asked: bool) -> Want {
        let soon = self.in_order && self.serial - self.finished < EVENTS_AFTER_FINISH;
        if asked || soon { Want::Event } else { Want::Nothing }
    }

    /// Notes the event of the last command.
    pub(crate) fn set_last(&mut self, event: &Arc<Event>) {
        if self.in_order {
            self.last = Some(LastCommand::Event(event.clone()));
        }
    }

    /// Notes the driver's event of the last command, which only a finish will use.
    pub(crate) fn set_last_native(&mut self, native: device::Event, mark: QueuePosition) {
        if self.in_order {
            self.last = Some(LastCommand::Native(native, mark));
        }
    }

    /// Notes a read in place that is being sent from now on.
    pub(crate) fn set_sending(&mut self, sending: Arc<SendGate>, event: &Arc<Event>) {
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
            gates.extend(sending.close(self.device.context())?);
        }
        if !gates.is_empty() {
            let gates: Vec<&device::Event> = gates.iter().collect();
            self.device.barrier(&gates, Want::Nothing)?;
            self.count();
        }
        Ok(())
    }

    /// Keeps the failure of a command that the driver refuses at once and that has no event. The
    /// client learns the failure before the end of the next command with an event, or from the next
    /// finish; nobody waits for the queue earlier. So a client that never asks does not make frames
    /// pile up. What the driver refuses later is told at once, one frame for each command.
    pub(crate) fn fail(&mut self, status: Status) {
        self.failure.get_or_insert(status);
    }

    /// Reports a kept failure to the client. Call it before the device gets a command with an
    /// event.
    pub(crate) fn tell_failure(&mut self, outbox: &Outbox, queue: Id<kind::Queue>) {
        if let Some(status) = self.failure.take() {
            let call = to_client::QueueFailed { queue, status: I32::new(status.0) };
            outbox.post(&call, &[], Body::None);
        }
    }

    /// Begins a finish. Returns the kept failure, which the answer reports.
    pub(super) fn begin_finish(&mut self) -> Option<Status> {
        self.finished = self.serial;
        self.failure.take()
    }

    /// Returns the event of the last command, if it has one that a finish can follow.
    pub(super) fn take_last(&mut self) -> Option<LastCommand> {
        self.last.take()
    }

    /// Enqueues a marker that ends when all commands so far have ended.
    pub(crate) fn marker(&mut self) -> Result<(device::Event, QueuePosition), Status> {
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

/// A command's position in its queue.
pub(crate) struct QueuePosition {
    progress: Arc<Progress>,
    serial: u64,
    /// Whether it ends after all commands before it.
    pub(crate) after_all: bool,
}

impl QueuePosition {
    /// Announces that its end will be reported. Call it before the driver can call back.
    pub(crate) fn expect(self) -> EndTurn {
        self.progress.ends.expect(self.serial);
        EndTurn(self)
    }

    /// Notes that the command has ended, and with it all before it if it comes after them.
    pub(crate) fn reach(&self) {
        if self.after_all {
            self.progress.reach(self.serial);
        }
    }
}

/// The turn of a command whose end must be reported. Until the turn is taken, the session reports
/// no later end of the queue.
#[must_use]
pub(crate) struct EndTurn(QueuePosition);

impl EndTurn {
    /// Reports the end after a callback: now, or when the ends before it are reported.
    pub(crate) fn take(self, tell: impl FnOnce(&QueuePosition) + Send + 'static) {
        let Self(mark) = self;
        let (progress, serial, after_all) = (mark.progress.clone(), mark.serial, mark.after_all);
        progress.ends.ended(serial, after_all, move || tell(&mark));
    }
}
