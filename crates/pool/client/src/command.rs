//! The path that all commands share: each is sent now, or held back and sent later.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use penstock_coherence::{CommandId, HostShape, Source as Origin, Submit, Sync};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Call, Id, Status};

use crate::error::Result;
use crate::event::{Event, Times, wire_waits};
use crate::issued::Issuing;
use crate::memory::Memory;
use crate::order::{Held, Planned, Submitted, may_be_read, name_of, order};
use crate::queue::{Enqueued, Queue, Want};
use crate::session::{Session, Target};
use crate::source::{self, Source};
use crate::transfer;
use crate::uses::Use;

/// A command about to be sent.
pub(crate) struct Issue {
    /// The wait list, in ids that the queue's worker knows.
    pub(crate) waits: Vec<Id<kind::Event>>,
    /// Id of the event, or none if the command has no event.
    pub(crate) event: Id<kind::Event>,
}

/// The event and the wait list of a command about to be sent, and the receiver of the bytes that it
/// reads.
struct Ends<'a> {
    event: Option<&'a Event>,
    waits: &'a [Event],
    target: Option<Box<dyn Target>>,
}

/// The parts of a command that all kinds of commands have.
pub(crate) struct Spec<'a> {
    pub(crate) uses: &'a [Use<'a>],
    pub(crate) waits: &'a [Event],
    pub(crate) want: Want,
    pub(crate) sync: Option<Sync>,
    /// The program's memory that the command reads when it is sent.
    pub(crate) reads_host: Option<HostShape>,
    /// The program's memory that the command writes until it has ended.
    pub(crate) writes_host: Option<HostShape>,
    /// A client event that ends when the client has done its own work behind the command.
    pub(crate) gate: Option<&'a Event>,
    pub(crate) target: Option<Box<dyn Target>>,
    /// An object, beside the memory, that must stay alive until the command is sent.
    pub(crate) keep: Option<Keep>,
}

/// Reference that keeps an object alive.
pub(crate) type Keep = Arc<dyn std::any::Any + Send + std::marker::Sync>;

impl<'a> Spec<'a> {
    pub(crate) fn new(uses: &'a [Use<'a>], waits: &'a [Event], want: Want) -> Self {
        Self {
            uses,
            waits,
            want,
            sync: None,
            reads_host: None,
            writes_host: None,
            gate: None,
            target: None,
            keep: None,
        }
    }
}

impl Spec<'_> {
    /// Returns whether the command is a marker or a barrier without a wait list.
    fn is_after_all(&self) -> bool {
        self.sync.is_some_and(|sync| !sync.is_listed)
    }
}

/// Function that sends the call of a command that was held back.
pub(crate) type Later = Box<dyn FnOnce(&Session, &Issue) -> Result<()> + Send>;

/// The decision about a command.
enum Decided {
    /// Send it, with the machine's plan if the machine was asked.
    Send(Option<Planned>),
    Held(Event),
}

impl Queue {
    /// Sends a command that consists of one call with the bytes of `source`, or holds it back.
    pub(crate) fn issue<C: Call>(
        self: &Arc<Self>,
        spec: Spec<'_>,
        source: &dyn Source,
        build: impl Fn(Id<kind::Event>) -> C + Copy + Send + 'static,
    ) -> Enqueued {
        let now = |session: &Session, issue: &Issue| {
            let call = build(issue.event);
            session.send_with::<C>(source.bytes(), source::sending(&call, &issue.waits, source))
        };
        let later = || -> Later {
            let kept = source.keep();
            Box::new(move |session, issue| {
                let call = build(issue.event);
                session.send_held::<C>(kept.bytes(), source::sending(&call, &issue.waits, &*kept))
            })
        };
        self.command(spec, now, later)
    }

    /// Sends a command, or holds it back. `now` sends its call. `later` makes the function that
    /// sends the same call later, with the content that the program's memory has then.
    pub(crate) fn command(
        self: &Arc<Self>,
        mut spec: Spec<'_>,
        now: impl FnOnce(&Session, &Issue) -> Result<()>,
        later: impl FnOnce() -> Later,
    ) -> Enqueued {
        let has_failed = |event: &Event| event.known_status().is_some_and(Status::is_error);
        if spec.waits.iter().any(has_failed) {
            // "... the execution status of the command is
            // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST."
            return Ok(Some(Event::ended(Status::WAIT_LIST_FAILED)));
        }
        for it in spec.uses {
            it.memory.create_in(self.place())?;
        }
        if self.may_be_alone(&spec) {
            let mut issued = self.progress().issue();
            // The machine would plan nothing, and no event is needed.
            if order().is_quiet() && !(spec.want == Want::Settled && self.concerns_others()) {
                let serial = issued.count();
                now(self.session(), &Issue { waits: Vec::new(), event: Id::NONE })?;
                if spec.want == Want::Settled {
                    self.settle_up_to(serial);
                }
                return Ok(None);
            }
        }
        while planted(Defect::HeldFirst) && spec.writes_host.as_ref().is_some_and(may_be_read) {
            penstock_process::sleep(std::time::Duration::from_millis(1));
        }
        // Held until the command is sent or held back, so that no command of another thread comes
        // between.
        let mut issued = self.progress().issue();
        let id = crate::ids::next_id();
        let planned = match self.decide(&mut spec, id, later)? {
            Decided::Held(event) => {
                self.note_order(&issued, Some(&event), (spec.waits, spec.is_after_all()));
                if spec.want != Want::Event {
                    self.report(&event);
                }
                return Ok(Some(event));
            }
            Decided::Send(planned) => planned,
        };
        let is_tracked = planned.as_ref().is_some_and(|planned| planned.is_tracked);
        let event = self
            .wants_event(&spec, planned.as_ref())
            .then(|| Event::of_command(self.session(), id, true));
        if let Some(event) = event.as_ref().filter(|_| is_tracked) {
            order().track(event);
        }
        self.note_order(&issued, event.as_ref(), (spec.waits, spec.is_after_all()));
        let objects = spec.uses.iter().map(|it| it.memory);
        let ends = Ends { event: event.as_ref(), waits: spec.waits, target: spec.target.take() };
        let sent = self.transmit(&mut issued, ends, objects, planned, now);
        if spec.want == Want::Settled {
            self.settle_up_to(issued.issued());
        }
        drop(issued);
        let failed = match &sent {
            Ok(status) => status.is_error().then_some(*status),
            Err(error) => Some(error.status()),
        };
        if let Some(status) = failed {
            if let Some(event) = &event {
                event.end(status, Times::default());
                if spec.want == Want::Nothing && sent.is_ok() {
                    self.report(event);
                }
            }
            sent?;
            return Ok(Some(event.unwrap_or_else(|| Event::ended(status))));
        }
        if is_tracked {
            order().sent(CommandId(id.get()));
        }
        if spec.want == Want::Nothing {
            // The worker reports the failure of a command with an event only through that event.
            event.iter().for_each(|event| self.report(event));
        }
        if event.is_some() {
            self.session().poll_now_and_then();
        }
        Ok(event)
    }

    /// Returns whether the command itself only needs to be sent.
    fn may_be_alone(&self, spec: &Spec<'_>) -> bool {
        spec.waits.is_empty()
            && spec.want != Want::Event
            && spec.target.is_none()
            && spec.gate.is_none()
            && spec.writes_host.is_none()
            && self.context().is_single()
    }

    fn wants_event(&self, spec: &Spec<'_>, planned: Option<&Planned>) -> bool {
        let is_open = |event: &Event| event.known_status().is_none();
        let is_behind_writers = planned.is_some_and(|planned| planned.is_behind_writers);
        let concerns_others =
            || self.concerns_others() || is_behind_writers || spec.waits.iter().any(is_open);
        spec.want == Want::Event
            || (spec.want == Want::Settled && concerns_others())
            || spec.target.is_some()
            || spec.gate.is_some()
            || planned.is_some_and(|planned| planned.is_tracked)
    }

    /// Asks the machine whether to send or hold back a command. The caller holds the queue's lock.
    fn decide(
        self: &Arc<Self>,
        spec: &mut Spec<'_>,
        id: Id<kind::Event>,
        later: impl FnOnce() -> Later,
    ) -> Result<Decided> {
        let context = self.context();
        let is_plain = spec.gate.is_none() && spec.writes_host.is_none() && context.is_single();
        if is_plain && order().is_quiet() {
            return Ok(Decided::Send(None));
        }
        context.tell_losses();
        let open = spec.waits.iter().filter(|event| event.known_status().is_none());
        let waits: Vec<CommandId> = open.map(name_of).collect();
        let uses = spec.uses.iter().filter_map(Use::of_allocation);
        let uses: Vec<_> = uses.collect();
        // Addresses of programs have at most 47 bits. Printed text is represented by bytes outside
        // that range.
        let apart = if planted(Defect::DeviceChain) { (self.place() as u64) << 48 } else { 0 };
        let own = |shape: HostShape| HostShape { start: shape.start + apart, ..shape };
        let command = Submit {
            id: CommandId(id.get()),
            queue: self.name(),
            in_order: self.is_in_order(),
            context: context.name(),
            place: self.place(),
            waits: &waits,
            sync: spec.sync,
            uses: &uses,
            reads_host: spec.reads_host.map(own),
            writes_host: spec.writes_host.map(own),
            gate: spec.gate.map(name_of),
        };
        let mut event = None;
        let hold = || {
            let held = Event::of_command(self.session(), id, false);
            event = Some(held.clone());
            let kept = Kept {
                queue: self.clone(),
                event: held.clone(),
                waits: spec.waits.to_vec(),
                objects: spec.uses.iter().map(|it| it.memory.clone()).collect(),
                target: spec.target.take(),
                send: later(),
                _keep: spec.keep.take(),
            };
            (Box::new(kept) as Box<dyn Held>, held)
        };
        let submitted =
            order().submit(&command, &|fetch| transfer::events(context, fetch), hold)?;
        Ok(match (submitted, event) {
            (Submitted::Held, Some(event)) => Decided::Held(event),
            (Submitted::Held, None) => Decided::Held(Event::ended(Status::INVALID_VALUE)),
            (Submitted::Send(planned), _) => Decided::Send(Some(planned)),
        })
    }

    /// Returns an event that ends with all commands sent in the queue so far, not with held ones.
    pub(crate) fn mark_sent(&self) -> Result<Event> {
        let mut issued = self.progress().issue();
        let event = Event::of_command(self.session(), crate::ids::next_id(), true);
        let queue = self.id();
        let send = |session: &Session, issue: &Issue| {
            session.send(&to_worker::Marker { queue, event: issue.event }, &issue.waits, &[])
        };
        let ends = Ends { event: Some(&event), waits: &[], target: None };
        self.transmit(&mut issued, ends, std::iter::empty(), None, send)?;
        Ok(event)
    }

    /// Sends a command with its transfers. Returns an error status if it was not sent because
    /// something that it waits for has failed.
    fn transmit<'m>(
        &self,
        issued: &mut Issuing<'_>,
        Ends { event, waits, target }: Ends<'_>,
        objects: impl Iterator<Item = &'m Arc<Memory>> + Clone,
        mut planned: Option<Planned>,
        send: impl FnOnce(&Session, &Issue) -> Result<()>,
    ) -> Result<Status> {
        let session = self.session();
        if let (Some(event), Some(planned)) = (event, &planned) {
            event.set_waits(waits, &planned.waits);
        }
        let started = planned
            .as_ref()
            .map_or(Ok(()), |planned| self.start_transfers(Ok(()), objects, planned));
        let mut ids = Vec::new();
        for event in waits.iter().chain(planned.iter().flat_map(|planned| &planned.waits)) {
            match event.id_for(session) {
                Ok(id) => ids.extend(id),
                // This is also the case if a transfer could not be started.
                Err(_) => return started.map(|()| Status::WAIT_LIST_FAILED),
            }
        }
        started?;
        if let Some(planned) = &planned {
            let ends = wire_waits(&planned.ends, session);
            ids.extend(ends.into_iter().map(Id::however_it_ends));
        }
        if ids.len() > 1 {
            // Segments of one object have the same transfers. The entry whose failure counts stays.
            ids.sort_unstable_by_key(|id| (id.of_entry().0.get(), id.get()));
            ids.dedup_by_key(|id| id.of_entry().0);
        }
        let serial = issued.count();
        if self.is_in_order() {
            self.note_waits(serial, waits);
        }
        if let Some(event) = event {
            // The rest of the plan stays alive until the command is sent, because the call names
            // its events.
            let (behind, is_behind_writers) = match &mut planned {
                Some(planned) => (std::mem::take(&mut planned.behind), planned.is_behind_writers),
                None => (Vec::new(), false),
            };
            event.set_behind(behind);
            if is_behind_writers || waits.iter().any(|event| event.known_status().is_none()) {
                event.note_open_before();
            }
            if self.is_in_order() {
                event.set_mark(self.progress().mark(serial));
            }
            match target {
                Some(target) => event.expect_read_at(session, target)?,
                None => event.expect_at(session)?,
            }
        }
        let issue = Issue { waits: ids, event: event.map_or(Id::NONE, |event| event.0.id) };
        // If the call exceeds a limit, the session goes on, but the program may free the target.
        send(session, &issue).inspect_err(|_| session.forget(issue.event))?;
        Ok(Status::OK)
    }

    /// Notes the events of other queues that have ended when this command has, told or not.
    fn note_waits(&self, serial: u64, waits: &[Event]) {
        let progress = self.progress();
        // Client events have ended before a command that waits for them is sent.
        let is_open = |event: &&Event| {
            event.known_status().is_none()
                && !event.is_of_client()
                && !event.is_told_before(progress)
        };
        let mut open = waits.iter().filter(is_open).map(Event::awaited).peekable();
        if open.peek().is_some() && !planted(Defect::OpenBefore) {
            progress.wait_for(serial, open);
        }
    }

    /// As [`Self::note_waits`], when a command of an out-of-order queue is enqueued. It comes after
    /// its wait list and the earlier barriers, or, if `is_after_all`, after all earlier commands.
    fn note_order(
        &self,
        issued: &Issuing<'_>,
        event: Option<&Event>,
        (waits, is_after_all): (&[Event], bool),
    ) {
        if self.is_in_order() || planted(Defect::OpenBefore) {
            return;
        }
        let serial = issued.issued() + 1;
        self.note_waits(serial, waits);
        let Some(event) = event else { return };
        if is_after_all {
            event.set_after(self.progress().stand_for_all(serial, event.awaited()));
            return;
        }
        let open =
            waits.iter().filter(|event| event.known_status().is_none() && !event.is_of_client());
        event.set_after(open.map(Event::awaited).chain(self.barriers()).collect());
        self.progress().wait_for(serial, std::iter::once(event.awaited()));
    }

    /// Notes that a blocking write with this number has returned. The program takes the write for
    /// ended, and in an in-order queue all commands before it.
    fn settle_up_to(&self, serial: u64) {
        self.progress().settle(serial);
        if self.is_in_order() {
            self.progress().take_for_ended_up_to(serial);
        }
    }

    /// Starts the transfers that a command needs. After a failure, `started`, it ends them instead.
    fn start_transfers<'m>(
        &self,
        mut started: Result<()>,
        objects: impl Iterator<Item = &'m Arc<Memory>> + Clone,
        planned: &Planned,
    ) -> Result<()> {
        for transfer in &planned.transfers {
            if transfer.fetch.source != Origin::Initial {
                order().follow(&transfer.departure);
                order().follow(&transfer.arrival);
            }
            let moves = |object: &&Arc<Memory>| {
                object.root().allocation() == Some(transfer.fetch.allocation)
            };
            if started.is_ok()
                && let Some(object) = objects.clone().find(moves)
            {
                started = transfer::start(object, transfer);
            }
            if let Err(error) = &started {
                for event in [&transfer.departure, &transfer.arrival] {
                    event.end(error.status(), Times::default());
                }
            }
        }
        started
    }
}

/// A command that is held back.
struct Kept {
    queue: Arc<Queue>,
    event: Event,
    waits: Vec<Event>,
    objects: Vec<Arc<Memory>>,
    target: Option<Box<dyn Target>>,
    send: Later,
    _keep: Option<Keep>,
}

impl Held for Kept {
    fn session(&self) -> &Arc<Session> {
        self.queue.session()
    }

    fn transfer_events(&self, fetch: &penstock_coherence::Fetch) -> (Event, Event) {
        transfer::events(self.queue.context(), fetch)
    }

    fn send(self: Box<Self>, planned: Planned) {
        let Self { queue, event, waits, objects, target, send, _keep } = *self;
        let mut issued = queue.progress().issue();
        let Some(sending) = event.begin_sending() else {
            let ended = queue.session().refused(Status::NODE_LOST);
            _ = queue.start_transfers(Err(ended), objects.iter(), &planned);
            return event.mark_sent();
        };
        let ends = Ends { event: Some(&event), waits: &waits, target };
        let sent = queue.transmit(&mut issued, ends, objects.iter(), Some(planned), send);
        // Before other threads may enqueue: the end of a later command of the queue implies this
        // one.
        sending.finish(sent.unwrap_or_else(|error| error.status()));
        drop(issued);
    }

    fn fail(self: Box<Self>, status: Status) {
        self.event.end(status, Times::default());
        self.event.mark_sent();
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("event", &self.event).finish_non_exhaustive()
    }
}
