//! Keeps the commands that the state machine of `penstock-coherence` holds back. Reports the ends
//! of commands to the machine, and sends a command when the machine releases it. One machine serves
//! the whole process, because the program's memory is one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

#[cfg(feature = "planted")]
use penstock_coherence::Rule;
use penstock_coherence::{
    Action, AllocationId, CommandId, ContextId, Fetch, HostShape, InPlace, Machine, NodeId, Plan,
    QueueId, Source, Submit, Verdict,
};
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
use penstock_wire::id::kind;
use penstock_wire::{Id, Status};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::event::{Event, Times};
use crate::progress;
use crate::session::Session;

/// Number of commands that one process may hold back. Each takes some 500 bytes, half a gigabyte in
/// all. A program that goes on enqueueing behind an event that it never sets gets an error before
/// memory runs out.
const HELD_MAX: usize = 1 << 20;
/// Number of blocking writes of out-of-order queues that may be open before the client looks which
/// of them have ended. A wait list of this length costs a few microseconds.
const SETTLED_MAX: usize = 64;

static ORDER: LazyLock<Order> = LazyLock::new(Order::default);

/// Returns the machine of this process.
pub(crate) fn order() -> &'static Order {
    &ORDER
}

/// Makes a user event of the program. [`set_user_event`] ends it.
pub fn user_event() -> Event {
    let event = Event::of_client(crate::ids::next_id());
    order().change(|state| state.machine.client_event(name_of(&event)));
    // Runs when the event is set. If the last holder drops the event, the callback is dropped
    // unrun.
    let forget = Forget(name_of(&event));
    event.when_ended(move |_| std::mem::forget(forget));
    event
}

/// Value whose drop makes the machine forget a user event. Commands that wait for it keep it alive.
struct Forget(CommandId);

impl Drop for Forget {
    fn drop(&mut self) {
        order().change(|state| state.machine.ended(self.0, false));
    }
}

/// Ends a user event, and sends what it held back. Returns `false` if it had ended already.
pub fn set_user_event(event: &Event, status: Status) -> bool {
    set_client_event(event, status, Times::default())
}

/// As [`set_user_event`], for an event that stands for work of the client, with its times.
pub(crate) fn set_client_event(event: &Event, status: Status, times: Times) -> bool {
    let status = if planted(Defect::UserEventFailure) { Status::OK } else { status };
    let ended = event.set_ended(status, times);
    if ended {
        order().end_client_event(event, !status.is_error());
    }
    ended
}

/// Returns whether an open command, in any context, writes bytes of this part of the program's
/// memory.
pub fn may_be_written(shape: &HostShape) -> bool {
    !order().is_quiet() && order().state.lock().machine.may_be_written(shape)
}

/// Returns whether a held-back command has still to read bytes of this part of the program's
/// memory.
pub fn may_be_read(shape: &HostShape) -> bool {
    !order().is_quiet() && order().state.lock().machine.may_be_read(shape)
}

/// The state machine of the process, and the commands that it holds back.
pub(crate) struct Order {
    state: Lock<State>,
    /// Whether no command can have anything to wait for. Then the machine need not be asked.
    is_quiet: AtomicBool,
}

#[derive(Default)]
struct State {
    machine: Machine,
    held: FxHashMap<CommandId, Box<dyn Held>>,
    /// Events of the commands that the machine tracks, so that other commands can wait for them.
    events: FxHashMap<CommandId, Event>,
}

/// A command that is held back, with everything that is needed to send it.
pub(crate) trait Held: Send {
    /// Returns the session that the command is sent to.
    fn session(&self) -> &Arc<Session>;

    /// Makes the events (departure and arrival) for a transfer that the command needs.
    fn transfer_events(&self, fetch: &Fetch) -> (Event, Event);

    /// Sends the command. If that fails, its event ends with the failure.
    fn send(self: Box<Self>, planned: Planned);

    /// Ends the command's event without sending the command.
    fn fail(self: Box<Self>, status: Status);
}

/// A plan of the machine, with events in place of its names.
#[derive(Default)]
pub(crate) struct Planned {
    pub(crate) transfers: Vec<Transfer>,
    /// Events that the command waits for. If one of them fails, the command fails.
    pub(crate) waits: Vec<Event>,
    /// Events that must have ended, whether well or not.
    pub(crate) ends: Vec<Event>,
    /// Events whose ends must be told before the end of the command.
    pub(crate) behind: Vec<Event>,
    /// Whether the end of a blocking write is awaited, because an earlier command has still to
    /// write.
    pub(crate) is_behind_writers: bool,
    /// Whether the machine must be told when the command was sent.
    pub(crate) is_tracked: bool,
}

/// A transfer that a command needs.
pub(crate) struct Transfer {
    pub(crate) fetch: Fetch,
    pub(crate) departure: Event,
    pub(crate) arrival: Event,
    pub(crate) source_waits: Vec<Event>,
    pub(crate) target_waits: Vec<Event>,
}

/// The verdict on a command.
pub(crate) enum Submitted {
    Send(Planned),
    Held,
}

pub(crate) fn name_of(event: &Event) -> CommandId {
    name(event.0.id)
}

fn name(id: Id<kind::Event>) -> CommandId {
    CommandId(id.get())
}

fn next() -> CommandId {
    name(crate::ids::next_id())
}

/// Returns the machine without the rule that `PENSTOCK_TEST_PLANT` names.
#[cfg(feature = "planted")]
fn machine() -> Machine {
    let is_named =
        |rule: &&Rule| penstock_trial::planted_name() == Some(format!("{rule:?}").as_str());
    Rule::ALL.iter().find(is_named).map_or_else(Machine::default, |rule| Machine::without(*rule))
}

#[cfg(not(feature = "planted"))]
fn machine() -> Machine {
    Machine::default()
}

impl Default for Order {
    fn default() -> Self {
        let state = State { machine: machine(), ..State::default() };
        Self { state: Lock::new(state), is_quiet: AtomicBool::new(true) }
    }
}

impl State {
    fn events_of(&self, ids: &[CommandId]) -> Vec<Event> {
        ids.iter().filter_map(|id| self.events.get(id)).cloned().collect()
    }

    fn planned(
        &mut self,
        plan: Plan,
        is_tracked: bool,
        make: &dyn Fn(&Fetch) -> (Event, Event),
    ) -> Planned {
        let behind = self.events_of(&plan.behind);
        let ends = self.events_of(&plan.ends);
        let mut transfers = Vec::new();
        for fetch in plan.fetches {
            let (source_waits, target_waits) =
                (self.events_of(&fetch.source_waits), self.events_of(&fetch.target_waits));
            let (departure, arrival) = make(&fetch);
            if fetch.source != Source::Initial {
                for event in [&departure, &arrival] {
                    self.events.insert(name_of(event), event.clone());
                }
            }
            transfers.push(Transfer { fetch, departure, arrival, source_waits, target_waits });
        }
        // These include the transfers that have just been made.
        let waits = self.events_of(&plan.waits);
        let is_behind_writers = plan.is_behind_writers;
        Planned { transfers, waits, ends, behind, is_behind_writers, is_tracked }
    }
}

impl Order {
    /// Returns whether [`Order::submit`] would answer [`Submitted::Send`] with an empty plan for
    /// every command that the machine need not track.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire)
    }

    /// Asks the machine. `make` makes the events of a transfer; `hold` makes what is kept of a
    /// command that is held back.
    ///
    /// # Errors
    /// If content that the command needs is lost, or too many commands are held back.
    pub(crate) fn submit(
        &self,
        command: &Submit<'_>,
        make: &dyn Fn(&Fetch) -> (Event, Event),
        hold: impl FnOnce() -> (Box<dyn Held>, Event),
    ) -> Result<Submitted> {
        let mut state = self.state.lock();
        if state.held.len() >= HELD_MAX {
            return Err(Error::Refused { node: "client".into(), status: Status::OUT_OF_RESOURCES });
        }
        let verdict = state.machine.submit(command, &mut next);
        match verdict {
            Verdict::Send { plan, is_tracked } => {
                let planned = state.planned(plan, is_tracked, make);
                self.note(&state);
                Ok(Submitted::Send(planned))
            }
            Verdict::Hold { until_ended } => {
                let (held, event) = hold();
                state.held.insert(command.id, held);
                state.events.insert(command.id, event.clone());
                let awaited = state.events_of(&until_ended);
                self.note(&state);
                drop(state);
                self.follow(&event);
                awaited.iter().for_each(Event::keep_receiving);
                Ok(Submitted::Held)
            }
            Verdict::ContentLost => {
                self.note(&state);
                Err(Error::ContentLost)
            }
        }
    }

    /// Registers the event of a tracked command, before the command is sent.
    pub(crate) fn track(&self, event: &Event) {
        let is_awaited = {
            let mut state = self.state.lock();
            state.events.insert(name_of(event), event.clone());
            state.machine.is_awaited(name_of(event))
        };
        self.follow(event);
        // A command that was held back meanwhile did not find the event.
        if is_awaited {
            event.keep_receiving();
        }
    }

    /// Has the machine told when the event of a command ends.
    pub(crate) fn follow(&self, event: &Event) {
        let id = name_of(event);
        event.when_ended(move |status| order().ended(id, !status.is_error()));
    }

    /// Notes that a tracked command was sent. Another thread sends what becomes ready, because this
    /// one may hold locks.
    pub(crate) fn sent(&self, id: CommandId) {
        let has_ready = self.change(|state| {
            state.machine.sent(id);
            state.machine.has_ready()
        });
        self.pump_later(has_ready);
    }

    #[allow(clippy::unused_self, reason = "it is this machine that is pumped")]
    fn pump_later(&self, has_ready: bool) {
        if has_ready {
            progress::send_later(Box::new(|| order().pump()));
        }
    }

    /// Notes that a command has ended. Another thread sends what becomes ready, because this one
    /// may be receiving.
    fn ended(&self, id: CommandId, is_ok: bool) {
        let has_ready = self.change(|state| {
            state.machine.ended(id, is_ok);
            state.events.remove(&id);
            state.machine.has_ready()
        });
        self.pump_later(has_ready);
    }

    /// Notes that a client event has ended, and sends what becomes ready. The thread may send.
    pub(crate) fn end_client_event(&self, event: &Event, is_ok: bool) {
        self.change(|state| state.machine.ended(name_of(event), is_ok));
        self.pump();
    }

    /// Sends what nothing holds back any more. The caller holds no locks and may wait for a link.
    fn pump(&self) {
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        while let Some(step) = self.next_step() {
            match step {
                Step::Send(id, held, planned) => {
                    if !sessions.iter().any(|known| Arc::ptr_eq(known, held.session())) {
                        sessions.push(held.session().clone());
                    }
                    held.send(planned);
                    self.change(|state| state.machine.sent(id));
                }
                Step::Fail(held, status) => held.fail(status),
                Step::Await(events) => events.iter().for_each(Event::keep_receiving),
            }
            // Some threads wait for commands to be sent.
            progress::user_event_ended();
            if planted(Defect::PumpOne) {
                break;
            }
        }
        for session in sessions {
            // The program may not flush them again. A lost session has ended its events.
            _ = session.flush();
        }
        progress::user_event_ended();
    }

    fn next_step(&self) -> Option<Step> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let action = state.machine.next_action(&mut next);
        let step = action.and_then(|action| match action {
            Action::Send(id, plan) => {
                let held = state.held.remove(&id)?;
                let planned = state.planned(plan, true, &|fetch| held.transfer_events(fetch));
                Some(Step::Send(id, held, planned))
            }
            Action::Fail(id) => Some(Step::Fail(state.held.remove(&id)?, Status::WAIT_LIST_FAILED)),
            Action::ContentLost(id) => Some(Step::Fail(state.held.remove(&id)?, Status::NODE_LOST)),
            Action::Await(_, ids) => Some(Step::Await(state.events_of(&ids))),
        });
        self.note(&guard);
        step
    }

    /// Returns the commands that now hold a queue back.
    pub(crate) fn held_in(&self, queue: QueueId) -> Vec<CommandId> {
        if self.is_quiet() { Vec::new() } else { self.state.lock().machine.held_in(queue) }
    }

    /// Waits until none of these commands, from [`Order::held_in`], is left.
    pub(crate) fn wait_until_passed(&self, ids: &[CommandId]) {
        if !ids.is_empty() {
            progress::wait_for_user_event(&|| self.state.lock().machine.have_passed(ids));
        }
    }

    /// Returns the events of those commands of a queue that will still write the program's memory.
    pub(crate) fn behind_queue(&self, queue: QueueId) -> Vec<Event> {
        if self.is_quiet() {
            return Vec::new();
        }
        let state = self.state.lock();
        state.events_of(&state.machine.behind_queue(queue))
    }

    /// Returns whether the host may copy in place, see [`Machine::may_copy`].
    pub(crate) fn may_copy(&self, copy: &InPlace) -> bool {
        if self.is_quiet() && penstock_trial::planted_name().is_none() {
            return copy.is_idle && copy.waits_ended;
        }
        self.state.lock().machine.may_copy(copy)
    }

    /// Notes a blocking write that has returned although its event is open. Returns `true` if more
    /// than [`SETTLED_MAX`] such events are open. Each later write names all of them in its wait
    /// list, so the caller should look which have ended.
    pub(crate) fn settle(
        &self,
        context: ContextId,
        queue: QueueId,
        in_order: bool,
        event: &Event,
    ) -> bool {
        let mut count = 0;
        self.change(|state| {
            state.machine.settle(context, queue, in_order, name_of(event));
            state.events.insert(name_of(event), event.clone());
            count = state.machine.settled_count(context);
        });
        self.follow(event);
        count > SETTLED_MAX
    }

    /// Returns the open events of blocking writes that have returned, except those of `own`, an
    /// in-order queue.
    pub(crate) fn unsettled(&self, context: ContextId, own: Option<QueueId>) -> Vec<Event> {
        if self.is_quiet() {
            return Vec::new();
        }
        let state = self.state.lock();
        state.events_of(&state.machine.unsettled(context, own))
    }

    /// Registers a new allocation. `nodes` are the nodes of its places.
    pub(crate) fn allocate(
        &self,
        size: u64,
        is_indivisible: bool,
        nodes: &[NodeId],
        has_initial: bool,
    ) -> AllocationId {
        let id = AllocationId(crate::ids::next_id::<kind::Mem>().get());
        self.change(|state| {
            state.machine.allocate(id, size, is_indivisible, nodes.to_vec(), has_initial)
        });
        id
    }

    pub(crate) fn release(&self, id: AllocationId) {
        self.change(|state| state.machine.release(id));
    }

    pub(crate) fn release_queue(&self, id: QueueId) {
        self.change(|state| state.machine.release_queue(id));
    }

    /// Tells the machine that the session of a node is lost.
    pub(crate) fn lose(&self, node: NodeId) {
        self.change(|state| state.machine.lost(node));
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        self.note(&state);
        changed
    }

    /// Updates `is_quiet`. Must be called after each change, before the lock is released.
    fn note(&self, state: &State) {
        self.is_quiet.store(state.machine.is_quiet(), Ordering::Release);
    }
}

enum Step {
    Send(CommandId, Box<dyn Held>, Planned),
    Fail(Box<dyn Held>, Status),
    Await(Vec<Event>),
}

/// Returns the places of a context by their names in the machine.
pub(crate) fn nodes_of<'a>(sessions: impl Iterator<Item = &'a Arc<Session>>) -> Vec<NodeId> {
    sessions.map(|session| NodeId(session.number())).collect()
}
