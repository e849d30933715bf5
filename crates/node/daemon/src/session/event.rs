//! Events: the ends of this worker's commands, and of commands elsewhere that it waits for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use penstock_device as device;
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, limits};
use rustc_hash::FxHashMap;

/// Status of an event that has not ended; all final states are 0 or negative.
const OPEN: i32 = 1;

/// All events of a session that can still be used.
#[derive(Default)]
pub(crate) struct Events {
    table: Lock<EventTable>,
}

#[derive(Default)]
struct EventTable {
    events: FxHashMap<Id<kind::Event>, Arc<Event>>,
    /// Ends that a peer told before the client named the peer that tells them. The peer is part of
    /// the key: only the end from the peer that the client names counts.
    early: FxHashMap<(Id<kind::Event>, Id<kind::Peer>), Status>,
}

impl EventTable {
    /// Fails if there is no room for one more event or early end.
    fn check_room(&self) -> Result<(), FrameError> {
        if self.events.len() + self.early.len() >= limits::EVENTS_PER_SESSION_MAX {
            return Err(FrameError::Limit("EVENTS_PER_SESSION_MAX"));
        }
        Ok(())
    }
}

pub(crate) struct Event {
    id: Id<kind::Event>,
    /// Whether a command of this worker ends it; the client is then told.
    own: bool,
    /// Whether it is the end of a transfer to this worker.
    arrival: AtomicBool,
    /// The peer that tells the end of an event that ends elsewhere; 0 for the client.
    teller: AtomicU64,
    /// [`OPEN`] or the final status.
    status: AtomicI32,
    links: Lock<Dependents>,
}

/// What depends on an event until it ends.
#[derive(Default)]
struct Dependents {
    /// The device's event, for wait lists in the same device context.
    native: Option<device::Event>,
    /// User events that stand for this event in other device contexts.
    bridges: Vec<device::Event>,
    /// User events for commands that follow this event however it ends. They always succeed.
    successions: Vec<device::Event>,
    followers: Vec<Follower>,
    /// Wait list of its command, because some drivers run a command after a failure in its wait
    /// list.
    waits: Vec<Arc<Event>>,
    /// Whether the client has released it while something here waits for its end.
    released: bool,
}

type Follower = Box<dyn FnOnce(Status) + Send>;

impl Events {
    /// Makes a command's event before the command is tried, because others may wait for it already.
    pub(crate) fn announce(&self, id: Id<kind::Event>) -> Result<Option<Arc<Event>>, FrameError> {
        if id.is_none() {
            return Ok(None);
        }
        let mut table = self.table.lock();
        table.check_room()?;
        let event = Arc::new(Event::new(id, true));
        match table.events.insert(id, event.clone()) {
            None => Ok(Some(event)),
            Some(_) => Err(FrameError::BadId("an event")),
        }
    }

    /// Registers an event that ends elsewhere: `peer` tells its end, or the client if `peer` is
    /// none. The peer may have told it already, because workers and client use different links.
    pub(super) fn expect(
        &self,
        id: Id<kind::Event>,
        peer: Id<kind::Peer>,
    ) -> Result<Arc<Event>, FrameError> {
        if id.is_none() {
            return Err(FrameError::BadId("an event"));
        }
        let mut table = self.table.lock();
        let told = table.early.remove(&(id, peer));
        if !table.events.contains_key(&id) {
            table.check_room()?;
        }
        let event =
            table.events.entry(id).or_insert_with(|| Arc::new(Event::new(id, false))).clone();
        // Still under the lock: the peer may be telling the end at this moment.
        event.teller.store(peer.get(), Ordering::Release);
        drop(table);
        if let Some(status) = told.filter(|_| !event.own) {
            event.end(status);
        }
        Ok(event)
    }

    pub(crate) fn get(&self, id: Id<kind::Event>) -> Option<Arc<Event>> {
        self.table.lock().events.get(&id).cloned()
    }

    /// Handles an event's end that a peer tells. The client must have named this peer. If the
    /// client has named none yet, the end is kept until it does.
    pub(crate) fn told_by(
        &self,
        peer: Id<kind::Peer>,
        id: Id<kind::Event>,
        status: Status,
    ) -> Result<(), FrameError> {
        if id.is_none() {
            return Err(FrameError::BadId("an event"));
        }
        let event = {
            let mut table = self.table.lock();
            let Some(event) = table.events.get(&id).cloned() else {
                if !table.early.contains_key(&(id, peer)) {
                    table.check_room()?;
                }
                table.early.insert((id, peer), status);
                return Ok(());
            };
            event
        };
        if event.own || event.teller.load(Ordering::Acquire) != peer.get() {
            return Err(FrameError::NotItsOwn("the end of an event"));
        }
        self.end_expected(&event, status);
        Ok(())
    }

    /// Ends an expected event for the client or a lost peer. A second end changes nothing.
    pub(crate) fn resolve(&self, id: Id<kind::Event>, status: Status) -> Result<(), FrameError> {
        let event = match self.get(id) {
            Some(event) => event,
            None => self.expect(id, Id::NONE)?,
        };
        if event.own {
            return Err(FrameError::BadId("an expected event"));
        }
        self.end_expected(&event, status);
        Ok(())
    }

    fn end_expected(&self, event: &Event, status: Status) {
        event.end(status);
        if event.links.lock().released {
            self.table.lock().events.remove(&event.id);
        }
    }

    /// Fails all events whose ends a lost peer would have told.
    pub(crate) fn lose(&self, peer: Id<kind::Peer>) {
        let lost = |event: &Event| {
            event.teller.load(Ordering::Acquire) == peer.get() && event.ended().is_none()
        };
        let lost: Vec<Id<kind::Event>> = self
            .table
            .lock()
            .events
            .values()
            .filter(|event| lost(event))
            .map(|event| event.id)
            .collect();
        for id in lost {
            // The event is expected, so resolving it cannot fail.
            _ = self.resolve(id, Status::NODE_LOST);
        }
    }

    /// Whether something here waits for an end that the client or another worker tells. Another
    /// worker may wait for the client.
    pub(crate) fn awaits_others(&self) -> bool {
        let by_others = |event: &Event| !event.own && event.ended().is_none();
        self.table.lock().events.values().any(|event| by_others(event))
    }

    /// Whether something here waits for an end that only the client can tell.
    pub(crate) fn awaits_client(&self) -> bool {
        let by_client = |event: &Event| {
            !event.own && event.teller.load(Ordering::Acquire) == 0 && event.ended().is_none()
        };
        self.table.lock().events.values().any(|event| by_client(event))
    }

    pub(super) fn release(&self, id: Id<kind::Event>) {
        let mut table = self.table.lock();
        let Some(event) = table.events.get(&id) else { return };
        // An open expected event must be found when its end is told: commands may wait for it.
        let keep = {
            let mut links = event.links.lock();
            links.released = true;
            !event.own && event.ended().is_none() && !planted(Defect::ReleaseEnds)
        };
        if !keep {
            table.events.remove(&id);
        }
    }

    /// Notes the wait list of the command of `event`.
    pub(crate) fn note_waits(&self, event: &Event, waits: &[Id<kind::Event>]) {
        let counts = |entry: &Id<kind::Event>| Some(entry.of_entry()).filter(|(_, counts)| *counts);
        let events = waits.iter().filter_map(counts).filter_map(|(id, _)| self.get(id));
        let open = events.filter(|it| it.ended() != Some(Status::OK));
        event.links.lock().waits = open.collect();
    }

    /// Returns the open events of a wait list as events of `context`.
    ///
    /// "CL_INVALID_EVENT_WAIT_LIST ... if event objects in event_wait_list are not valid events."
    /// The client has checked that; an event that is unknown here is reported as invalid.
    pub(crate) fn natives(
        &self,
        waits: &[Id<kind::Event>],
        context: &device::Context,
    ) -> Result<Vec<device::Event>, Status> {
        if waits.is_empty() {
            return Ok(Vec::new());
        }
        let mut natives = Vec::with_capacity(waits.len());
        for entry in waits {
            let (id, its_failure_counts) = entry.of_entry();
            let event = self.get(id).ok_or(Status::INVALID_EVENT)?;
            match event.ended() {
                Some(status) if status.is_error() && its_failure_counts => {
                    return Err(Status::WAIT_LIST_FAILED);
                }
                Some(_) => {}
                None if its_failure_counts => natives.extend(event.native_in(context)?),
                None => natives.extend(event.succession_in(context)?),
            }
        }
        if planted(Defect::LostWait) && natives.len() > 1 {
            natives.pop();
        }
        Ok(natives)
    }

    /// Calls `then` on any thread when all of `waits` have ended, with a failure if one failed.
    /// `then` must not block.
    pub(crate) fn when_all(
        &self,
        waits: &[Id<kind::Event>],
        then: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        type Then = Box<dyn FnOnce(Result<(), Status>) + Send>;
        struct Countdown {
            left: usize,
            failure: Result<(), Status>,
            then: Option<Then>,
        }
        // One more than the events, for this function itself.
        let countdown = Countdown {
            left: waits.len() + 1,
            failure: Ok(()),
            then: Some(Box::new(then) as Then),
        };
        let countdown = Arc::new(Lock::new(countdown));
        let step = |countdown: &Lock<Countdown>, ended: Result<(), Status>| {
            let mut state = countdown.lock();
            state.left = state.left.saturating_sub(1);
            if ended.is_err() {
                state.failure = ended;
            }
            if state.left == 0
                && let Some(then) = state.then.take()
            {
                let failure = state.failure;
                drop(state);
                then(failure);
            }
        };
        for entry in waits {
            let (id, its_failure_counts) = entry.of_entry();
            match self.get(id) {
                Some(event) => {
                    let countdown = countdown.clone();
                    event.follow(move |status| {
                        let ended = if its_failure_counts { status.ok() } else { Ok(()) };
                        step(&countdown, ended.map_err(|_| Status::WAIT_LIST_FAILED));
                    });
                }
                None => step(&countdown, Err(Status::INVALID_EVENT)),
            }
        }
        step(&countdown, Ok(()));
    }
}

impl Event {
    fn new(id: Id<kind::Event>, own: bool) -> Self {
        Self {
            id,
            own,
            arrival: AtomicBool::new(false),
            teller: AtomicU64::new(0),
            status: AtomicI32::new(OPEN),
            links: Lock::default(),
        }
    }

    pub(crate) fn id(&self) -> Id<kind::Event> {
        self.id
    }

    /// Marks it as the end of a transfer to this worker.
    pub(crate) fn set_arrival(&self) {
        self.arrival.store(true, Ordering::Release);
    }

    /// Whether it is a transfer that did not bring its content.
    pub(crate) fn is_failed_arrival(&self) -> bool {
        self.arrival.load(Ordering::Acquire) && self.ended().is_some_and(Status::is_error)
    }

    pub(crate) fn ended(&self) -> Option<Status> {
        let status = self.status.load(Ordering::Acquire);
        (status <= 0).then_some(Status(status))
    }

    /// Notes the device's event, so that commands of the same device context can wait for it.
    pub(crate) fn set_native(&self, native: &device::Event) {
        let mut links = self.links.lock();
        if self.ended().is_none() {
            links.native = Some(native.clone());
        }
    }

    /// Returns an event of `context` that ends with this one; `None` if this one has ended.
    fn native_in(&self, context: &device::Context) -> Result<Option<device::Event>, Status> {
        let mut links = self.links.lock();
        match self.ended() {
            Some(status) if status.is_error() => return Err(Status::WAIT_LIST_FAILED),
            Some(_) => return Ok(None),
            None => {}
        }
        let known = links
            .native
            .iter()
            .chain(&links.bridges)
            .find(|event| event.context_id() == context.id());
        if let Some(known) = known {
            return Ok(Some(known.clone()));
        }
        let bridge = device::Event::user(context)?;
        links.bridges.push(bridge.clone());
        Ok(Some(bridge))
    }

    /// Returns an event of `context` that succeeds when this one ends, however it ends; `None` if
    /// this one has ended meanwhile. The device's own event would fail the command.
    fn succession_in(&self, context: &device::Context) -> Result<Option<device::Event>, Status> {
        let mut links = self.links.lock();
        if self.ended().is_some() {
            return Ok(None);
        }
        if let Some(known) =
            links.successions.iter().find(|event| event.context_id() == context.id())
        {
            return Ok(Some(known.clone()));
        }
        let succession = device::Event::user(context)?;
        links.successions.push(succession.clone());
        Ok(Some(succession))
    }

    /// Calls `follower` with the final status, at once if it has ended. `follower` must not block.
    pub(crate) fn follow(&self, follower: impl FnOnce(Status) + Send + 'static) {
        let mut links = self.links.lock();
        match self.ended() {
            None => links.followers.push(Box::new(follower)),
            Some(status) => {
                drop(links);
                follower(status);
            }
        }
    }

    /// Ends the event here, once, for the devices and the followers.
    pub(crate) fn end(&self, status: Status) {
        let links = {
            let mut links = self.links.lock();
            if self.ended().is_some() {
                return;
            }
            self.status.store(status.0.min(0), Ordering::Release);
            let released = links.released;
            std::mem::replace(&mut *links, Dependents { released, ..Dependents::default() })
        };
        // Without the lock: the driver may call back within.
        tell_all(links, status);
    }

    /// Calls `then` with the final status of this command's event, whose end the device reports
    /// with `status`: now, or when the ends of its wait list are known here too.
    pub(crate) fn when_known(
        self: &Arc<Self>,
        status: Status,
        then: impl FnOnce(Status) + Send + 'static,
    ) {
        let waits = std::mem::take(&mut self.links.lock().waits);
        let failed = |wait: &Arc<Event>| wait.ended().is_some_and(Status::is_error);
        // "... if the execution status of any of the events in event_wait_list is a negative
        // integer value", the command has failed, whatever the driver made of it.
        let status = if waits.iter().any(failed) && !status.is_error() {
            Status::WAIT_LIST_FAILED
        } else {
            status
        };
        if !status.is_error()
            && let Some(open) = waits.iter().find(|wait| wait.ended().is_none()).cloned()
        {
            // The device has ended it, but the result depends on events that have not ended here.
            let event = self.clone();
            event.links.lock().waits = waits;
            return open.follow(move |_| event.when_known(status, then));
        }
        then(status);
    }
}

thread_local! {
    /// Ends that this thread still has to tell while it tells one.
    static TELLING: RefCell<Option<VecDeque<(Dependents, Status)>>> = const { RefCell::new(None) };
}

/// Tells an end to everything that depends on the event. A follower may end the next event, and so
/// on; this happens in a loop and not recursively, because a client decides how long such a chain
/// is.
fn tell_all(links: Dependents, status: Status) {
    let outermost = TELLING.with_borrow_mut(|telling| match telling {
        Some(later) => {
            later.push_back((links, status));
            false
        }
        None => {
            *telling = Some(VecDeque::from([(links, status)]));
            true
        }
    });
    if !outermost {
        return;
    }
    loop {
        let next = TELLING.with_borrow_mut(|telling| {
            let next = telling.as_mut().and_then(VecDeque::pop_front);
            if next.is_none() {
                *telling = None;
            }
            next
        });
        let Some((links, status)) = next else { return };
        for bridge in links.bridges {
            // If a bridge cannot be ended, its context is gone.
            _ = bridge.complete(Status(status.0.min(0)));
        }
        for succession in links.successions {
            _ = succession.complete(Status::OK);
        }
        for follower in links.followers {
            follower(status);
        }
    }
}

#[cfg(test)]
mod tests;
