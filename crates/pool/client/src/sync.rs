//! Commands that move nothing: markers, barriers, the ends of blocking calls, and work that the
//! client does itself.

use std::sync::Arc;
use std::time::Duration;

use penstock_cl_sys::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
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
use crate::summary::Reason;
use crate::uses::Use;

impl Queue {
    /// Makes a command count as done, because its blocking write returns: later commands of the
    /// context's other queues, and of an out-of-order queue, follow it. Waits until the bytes are
    /// taken. Also waits for the end if an earlier command has still to write the program's memory,
    /// because the program takes that for done too.
    pub fn settle(&self, event: &Event) {
        self.waiting(Reason::Write, || self.settle_now(event));
    }

    fn settle_now(&self, event: &Event) {
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
        let own = self.is_in_order().then(|| self.name());
        order().unsettled(self.context().name(), own)
    }

    /// Returns an event that ends when the queue has come far enough for the host to use memory
    /// that it shares with the device, mapped at `mapped` in the program. Returns `None` if the
    /// host may use it now. Until then commands may still write there.
    ///
    /// # Errors
    /// If the node is lost.
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

    /// Returns an event that ends when the program's memory at `written` has its final content and
    /// the queue has come this far. Later commands of the queue see that content. Returns `None` if
    /// no command is needed for this.
    ///
    /// # Errors
    /// If the node is lost.
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

    /// Has the client run `run` when all earlier commands and `waits` have ended. `run` receives
    /// the status of these, and returns the status with which the event ends. It reads and writes
    /// these parts of the program's memory, and runs in the client's callback thread. Later
    /// commands of the queue wait for it.
    ///
    /// # Errors
    /// If the node is lost.
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
            let started = penstock_process::now();
            let status = run(status);
            set_client_event(&told, status, after(turn.times(), penstock_process::since(started)));
        });
        // Only this function can flush the marker: the program waits for another event.
        self.flush()?;
        Ok(gate)
    }

    /// Waits until it is the turn of a command of this queue, and runs `work` while later commands
    /// wait. The returned event has ended. Its status tells of a failed wait list; in that case
    /// `work` was not called.
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

    /// Sends the marker of a gate. If that fails, ends the gate so that it holds nothing back.
    fn send_gated(self: &Arc<Self>, spec: Spec<'_>, gate: &Event) -> Enqueued {
        self.send_marker(spec).inspect_err(|error| _ = set_user_event(gate, error.status()))
    }

    /// Returns the kind of marker that stands for a command with this wait list. In an out-of-order
    /// queue, a command without a wait list does not come after commands that are held back, but a
    /// marker without a wait list would.
    fn turn(&self, waits: &[Event]) -> Sync {
        Sync { is_listed: !self.is_in_order() || !waits.is_empty(), is_barrier: false }
    }

    /// Sends a marker. It also stands for commands that only wait for `waits` (or, if there are
    /// none, for all earlier commands) and have `memory` current when they end.
    ///
    /// # Errors
    /// If the node is lost.
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

    /// Sends a command that does nothing but has its turn: after `waits`, and after all earlier
    /// commands in an in-order queue or the earlier barriers in an out-of-order queue.
    ///
    /// # Errors
    /// If the node is lost.
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

    /// Returns whether a command that does nothing has nothing to wait for, neither events nor a
    /// barrier. Wait lists on the wire omit events that have ended, and an empty list of a marker
    /// or a barrier would mean all earlier commands.
    fn has_passed(&self, waits: &[Event]) -> bool {
        let ended = |event: &Event| event.known_status() == Some(Status::OK);
        !self.is_in_order()
            && !self.profiles()
            && waits.iter().all(ended)
            && !self.is_behind_barrier()
    }

    /// Sends a barrier.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn barrier(self: &Arc<Self>, waits: &[Event], want: Want) -> Enqueued {
        if !waits.is_empty() && self.has_passed(waits) {
            return Ok(ended(want));
        }
        let queue = self.id();
        let sync = Sync { is_listed: !waits.is_empty(), is_barrier: true };
        // In an in-order queue a barrier is a command like any other.
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
    /// If the node is lost.
    pub fn migrate(
        self: &Arc<Self>,
        memory: &[Arc<Memory>],
        flags: u64,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let access = if flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED == 0 {
            Access::Read
        } else {
            Access::Overwrite
        };
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

/// Returns the times of work that the client did after a marker of the same queue, by the clock of
/// the marker's device. They are zero if the queue has no times.
fn after(marker: Times, took: Duration) -> Times {
    if marker.ended == 0 {
        return marker;
    }
    let ended = marker.ended.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    Times { started: marker.ended, ended, completed: ended, ..marker }
}

impl Sibling for Queue {
    fn settle_all(self: Arc<Self>) {
        // A blocking write that is being sent either has seen that there are several queues, or is
        // counted once this lock is free.
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
