//! Commands that move nothing: markers and barriers, what stands for a blocking call, and what the client runs itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_coherence::{HostShape, Sync};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::{Status, U64};

use crate::command::Spec;
use crate::context::Sibling;
use crate::error::Result;
use crate::event::{Event, Times};
use crate::memory::Memory;
use crate::order::{order, set_client_event, set_user_event};
use crate::queue::{Access, Enqueued, Queue, Want, ended};
use crate::source::{Given, NOTHING};
use crate::uses::Use;

impl Queue {
    /// What the command of this event does counts as done, because a blocking write returns: later commands of the
    /// context's other queues, and of an out-of-order one, follow it. Waits until the bytes are taken, and for the end
    /// where a command before it has still to write the program's memory: the program takes that for done, too.
    pub fn settle(&self, event: &Event) {
        event.wait_until_sent();
        event.take_for_ended();
        if event.returns_at_end() {
            _ = event.wait();
        } else if self.concerns_others()
            && event.known_status().is_none()
            && order().settle(self.context().name(), self.name(), self.is_in_order(), event)
        {
            self.session().poll();
        }
    }

    fn unsettled(&self) -> Vec<Event> {
        order().unsettled(self.context().name(), self.name(), self.is_in_order())
    }

    /// An event that ends when the queue has come so far that the host may use memory that it shares with the device, at
    /// `mapped` in the program; `None` if it may now. Until then commands may still write there.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn reached(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        mapped: HostShape,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        if self.in_place(memory, waits, want, |_, _| ()).is_some() {
            return Ok(ended(want));
        }
        let all = [waits, &self.unsettled()].concat();
        let spec = Spec {
            sync: Some(self.turn(waits)),
            writes_host: Some(mapped),
            ..Spec::new(&[], &all, Want::Event)
        };
        self.send_marker(spec)
    }

    /// An event that ends when the program's memory at `written` has its final content and the queue has come so far:
    /// what comes behind in the queue sees it. `None` if nothing has to be said.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn released(self: &Arc<Self>, written: HostShape, waits: &[Event], want: Want) -> Enqueued {
        if want == Want::Nothing && waits.is_empty() && order().is_quiet() {
            return Ok(None);
        }
        let spec = Spec {
            sync: Some(self.turn(waits)),
            reads_host: Some(written).filter(|_| !planted(Defect::MapChain)),
            ..Spec::new(&[], waits, want)
        };
        self.send_marker(spec)
    }

    /// Has the client itself do something when everything before it and `waits` have ended: `run` gets the status of
    /// that, and returns the status with which the event ends. It reads and writes these parts of the program's memory.
    /// It runs in the client's callback thread. What comes behind it in the queue waits for it.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn run(
        self: &Arc<Self>,
        (reads_host, writes_host): (Option<HostShape>, Option<HostShape>),
        waits: &[Event],
        run: impl FnOnce(Status) -> Status + Send + 'static,
    ) -> Result<Event> {
        let gate = Event::of_client(crate::ids::next_id());
        let spec = Spec {
            sync: Some(self.turn(waits)),
            reads_host,
            writes_host,
            gate: Some(&gate),
            ..Spec::new(&[], waits, Want::Event)
        };
        let before = self.send_gated(spec, &gate)?.unwrap_or_else(|| Event::ended(Status::OK));
        let told = gate.clone();
        let turn = before.clone();
        before.on_complete(move |status| {
            let started = Instant::now();
            let status = run(status);
            set_client_event(&told, status, after(turn.times(), started.elapsed()));
        });
        // Nobody may flush the marker but this function: the program waits for another event.
        self.flush()?;
        Ok(gate)
    }

    /// Waits until it is the turn of a command of this queue, and does `work` then, while what comes behind it waits.
    /// The event has ended. It tells of a wait list that has failed; then `work` was not called.
    pub(crate) fn in_turn(
        self: &Arc<Self>,
        writes_host: Option<HostShape>,
        waits: &[Event],
        work: impl FnOnce() -> Result<()>,
    ) -> Enqueued {
        let gate = Event::of_client(crate::ids::next_id());
        let all = [waits, &self.unsettled()].concat();
        let spec = Spec {
            sync: Some(self.turn(waits)),
            writes_host,
            gate: Some(&gate).filter(|_| !planted(Defect::TornRead)),
            ..Spec::new(&[], &all, Want::Event)
        };
        let before = self.send_gated(spec, &gate)?;
        let status = before.as_ref().map_or(Status::OK, Event::wait);
        let done = if status == Status::OK { work() } else { Ok(()) };
        set_user_event(&gate, status);
        done.map(|()| before)
    }

    /// Sends the marker of a gate. A gate whose marker could not be sent holds nothing back.
    fn send_gated(self: &Arc<Self>, spec: Spec<'_>, gate: &Event) -> Enqueued {
        self.send_marker(spec).inspect_err(|error| _ = set_user_event(gate, error.status()))
    }

    /// A marker that stands for a command with this wait list. Out of order, a command without a wait list comes after
    /// nothing that is held back; a marker would.
    fn turn(&self, waits: &[Event]) -> Sync {
        Sync { is_listed: !self.is_in_order() || !waits.is_empty(), is_barrier: false }
    }

    /// A marker; also for commands that only have to wait for `waits` (all before it, where there are none) and that
    /// have `memory` current when they end.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn marker(
        self: &Arc<Self>,
        memory: Option<(&Arc<Memory>, Access)>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        if memory.is_none() && !waits.is_empty() && self.has_passed(waits) {
            return Ok(ended(want));
        }
        let uses: Vec<_> =
            memory.map(|(memory, access)| Use::all(memory, access)).into_iter().collect();
        let sync = Sync { is_listed: !waits.is_empty(), is_barrier: false };
        self.send_marker(Spec { sync: Some(sync), ..Spec::new(&uses, waits, want) })
    }

    /// A command that does nothing, when it is its turn: after `waits`, and after all before it where the queue is in order,
    /// else after the barriers before it.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn pass(self: &Arc<Self>, waits: &[Event], want: Want) -> Enqueued {
        if self.has_passed(waits) {
            return Ok(ended(want));
        }
        self.send_marker(Spec { sync: Some(self.turn(waits)), ..Spec::new(&[], waits, want) })
    }

    fn send_marker(self: &Arc<Self>, spec: Spec<'_>) -> Enqueued {
        let queue = self.id();
        self.issue(spec, &NOTHING, move |event| to_worker::Marker { queue, event })
    }

    /// Whether a command that does nothing has nothing to wait for, neither events nor a barrier. What has ended is left out
    /// of wait lists on the wire, and there an empty one of a marker or a barrier means all commands so far.
    fn has_passed(&self, waits: &[Event]) -> bool {
        let ended = |event: &Event| event.known_status() == Some(Status::OK);
        !self.is_in_order()
            && !self.profiles()
            && waits.iter().all(ended)
            && !self.is_behind_barrier()
    }

    /// A barrier.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn barrier(self: &Arc<Self>, waits: &[Event], want: Want) -> Enqueued {
        if !waits.is_empty() && self.has_passed(waits) {
            return Ok(ended(want));
        }
        let queue = self.id();
        let sync = Sync { is_listed: !waits.is_empty(), is_barrier: true };
        // In order, a barrier is one command of many.
        let own = if self.is_in_order() { want } else { Want::Event };
        let spec = Spec { sync: Some(sync), ..Spec::new(&[], waits, own) };
        let barrier =
            self.issue(spec, &NOTHING, move |event| to_worker::Barrier { queue, event })?;
        if let Some(event) = barrier.as_ref().filter(|_| !self.is_in_order()) {
            self.set_barrier(event, !waits.is_empty());
            if want != Want::Event {
                self.report(event);
            }
        }
        Ok(barrier)
    }

    /// Moves memory objects to the queue's device. `flags` are `cl_mem_migration_flags`.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn migrate(
        self: &Arc<Self>,
        memory: &[Arc<Memory>],
        flags: u64,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        /// `CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED`.
        const UNDEFINED: u64 = 1 << 1;
        let access = if flags & UNDEFINED == 0 { Access::Read } else { Access::Overwrite };
        let uses: Vec<_> = memory.iter().map(|memory| Use::all(memory, access)).collect();
        let ids: Vec<u64> = memory.iter().map(|memory| memory.id_at(self.place()).get()).collect();
        let ids = penstock_wire::frame::encode(&ids);
        let queue = self.id();
        self.issue(Spec::new(&uses, waits, want), &Given(&ids), move |event| to_worker::Migrate {
            queue,
            event,
            flags: U64::new(flags),
        })
    }
}

/// Times of what the client has done after a marker of the same queue, by the clock of the marker's device. Zero where the
/// queue has no times.
fn after(marker: Times, took: Duration) -> Times {
    if marker.ended == 0 {
        return marker;
    }
    let ended = marker.ended.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    Times { started: marker.ended, ended, completed: ended, ..marker }
}

impl Sibling for Queue {
    fn settle_all(self: Arc<Self>) {
        // A blocking write that is being sent has either seen that there are several queues, or is counted when this lock
        // is free.
        drop(self.progress().issue());
        if !self.progress().has_unsettled() || planted(Defect::NewQueue) {
            return;
        }
        // A lost node has ended its commands.
        if let Ok(marker) = self.mark_sent() {
            _ = order().settle(self.context().name(), self.name(), self.is_in_order(), &marker);
        }
    }
}
