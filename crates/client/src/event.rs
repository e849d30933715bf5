//! The completion of one command.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

pub use penstock_wire::Times;
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{I32, Id, Status};

use crate::error::Result;
use crate::progress;
use crate::session::Session;
use crate::session::failure::Failure;

/// Status of an event that has not ended: `CL_SUBMITTED`. (Workers hand commands to devices at once, and do not tell when.)
pub(crate) const SUBMITTED: i32 = 2;

/// The completion of one command, or a user event. Clones name the same event.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<Inner>);

/// How far a queue has come, as far as this process knows without asking.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Commands so far. Locked from a command's counting until it is sent: else another thread could send a later one
    /// first, and its end would tell nothing of this one.
    issued: Mutex<u64>,
    reached: AtomicU64,
}

/// A command's place in its queue, where its end tells the end of all before it: workers tell ends in the order of the commands.
#[derive(Debug)]
pub(crate) struct Mark {
    progress: Arc<Progress>,
    serial: u64,
}

impl Progress {
    /// Commands so far, to count one more and send it.
    pub(crate) fn issue(&self) -> MutexGuard<'_, u64> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All commands up to this one have ended.
    pub(crate) fn reach(&self, serial: u64) {
        self.reached.fetch_max(serial, Ordering::AcqRel);
    }

    /// Whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.reached.load(Ordering::Acquire) >= *self.issue()
    }

    pub(crate) fn mark(self: &Arc<Self>, serial: u64) -> Mark {
        Mark { progress: self.clone(), serial }
    }
}

type Callback = Box<dyn FnOnce(Status) + Send>;

pub(crate) struct Inner {
    pub(crate) id: Id<kind::Event>,
    /// Who runs the command; none for a user event or one that ended in the client.
    session: Option<Arc<Session>>,
    /// [`SUBMITTED`] or the final status.
    status: AtomicI32,
    times: OnceLock<Times>,
    /// What the end tells of the command's queue.
    mark: Option<Mark>,
    telling: Mutex<()>,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    callbacks: Vec<Callback>,
    /// Where a failure is noted, because the program does not hold the event.
    report: Option<Arc<Failure>>,
    /// Sessions that expect this event although another one, or the client, ends it.
    told: Vec<Told>,
}

struct Told {
    session: Weak<Session>,
    node: usize,
    /// The client itself tells the end (user events, relayed events).
    by_client: bool,
}

impl Event {
    /// The event of a command that `session` runs.
    pub(crate) fn of_command(session: &Arc<Session>, mark: Option<Mark>) -> Self {
        Self::new(Some(session.clone()), SUBMITTED, mark)
    }

    /// A user event: it ends by [`Event::set_status`].
    pub fn user() -> Self {
        Self::new(None, SUBMITTED, None)
    }

    /// An event that has ended already.
    pub fn ended(status: Status) -> Self {
        Self::new(None, status.0.min(0), None)
    }

    fn new(session: Option<Arc<Session>>, status: i32, mark: Option<Mark>) -> Self {
        Self(Arc::new(Inner {
            id: crate::next_id(),
            session,
            status: AtomicI32::new(status),
            times: OnceLock::new(),
            mark,
            telling: Mutex::new(()),
            shared: Mutex::default(),
        }))
    }

    /// Whether this is the same event.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// `None` while it has not ended, without asking anybody.
    pub fn known_status(&self) -> Option<Status> {
        let status = self.0.status.load(Ordering::Acquire);
        (status <= 0).then_some(Status(status))
    }

    /// `None` while it has not ended, as far as the link has brought.
    pub fn poll(&self) -> Option<Status> {
        if self.known_status().is_none()
            && let Some(session) = &self.0.session
        {
            session.poll();
        }
        self.known_status()
    }

    /// Waits for its end. A lost node ends it.
    pub fn wait(&self) -> Status {
        if let Some(status) = self.known_status() {
            return status;
        }
        match &self.0.session {
            Some(session) => session.wait(&|| self.known_status().is_some()),
            None => progress::wait_for_user_event(&|| self.known_status().is_some()),
        }
        self.known_status().unwrap_or(Status::NODE_LOST)
    }

    /// Calls `callback` with the final status, in the client's callback thread, never in the caller's.
    pub fn on_complete(&self, callback: impl FnOnce(Status) + Send + 'static) {
        let mut shared = self.0.shared();
        match self.known_status() {
            Some(status) => progress::call_back(Box::new(move || callback(status))),
            None => {
                shared.callbacks.push(Box::new(callback));
                if let Some(session) = &self.0.session {
                    session.add_interest();
                }
            }
        }
    }

    /// Has a failure noted, now or at the end: the program does not hold the event.
    pub(crate) fn report_to(&self, failure: &Arc<Failure>) {
        let mut shared = self.0.shared();
        match self.known_status() {
            Some(status) => failure.note(status),
            None => shared.report = Some(failure.clone()),
        }
    }

    /// Times of the command; zero before its end, or where its queue does not profile.
    pub fn times(&self) -> Times {
        self.0.times.get().copied().unwrap_or_default()
    }

    /// Ends a user event. `false` if it had ended already.
    pub fn set_status(&self, status: Status) -> bool {
        let ended = self.end(status, Times::default());
        progress::user_event_ended();
        ended
    }

    /// Marks the end, tells who waits. `false` if it had ended already.
    pub(crate) fn end(&self, status: Status, times: Times) -> bool {
        let mut shared = self.0.shared();
        if self.known_status().is_some() {
            return false;
        }
        // The times are there before anybody can see that the event has ended, and so is a failure that another call tells.
        _ = self.0.times.set(times);
        if let Some(report) = shared.report.take() {
            report.note(status);
        }
        self.0.status.store(status.0.min(0), Ordering::Release);
        // A command that was refused ends at once, whatever goes on before it in its queue.
        if let Some(mark) = self.0.mark.as_ref().filter(|_| !status.is_error()) {
            mark.progress.reach(mark.serial);
        }
        let callbacks = std::mem::take(&mut shared.callbacks);
        // A lost worker tells its peers nothing, so the client does.
        let lost = status == Status::NODE_LOST;
        let told = shared.told.iter().filter(|told| told.by_client || lost);
        let told: Vec<_> = told.map(|told| told.session.clone()).collect();
        drop(shared);
        for session in told.iter().filter_map(Weak::upgrade) {
            self.resolve(&session, status);
        }
        for callback in callbacks {
            if let Some(session) = &self.0.session {
                session.drop_interest();
            }
            progress::call_back(Box::new(move || callback(status)));
        }
        true
    }

    /// Makes the event known to `session`, so that a command there can wait for it. `None` if it has ended well already;
    /// an error if it failed.
    pub(crate) fn id_for(&self, session: &Arc<Session>) -> Result<Option<Id<kind::Event>>, WaitFailed> {
        match self.known_status() {
            Some(status) if status.is_error() => return Err(WaitFailed),
            Some(_) => return Ok(None),
            None => {}
        }
        let own = self.0.session.as_ref().is_some_and(|own| Arc::ptr_eq(own, session));
        if !own && !self.tell(session) {
            return Ok(None);
        }
        Ok(Some(self.0.id))
    }

    /// Announces the event to another session than the one that ends it. `false` if it has ended meanwhile.
    fn tell(&self, session: &Arc<Session>) -> bool {
        // Held while the announcement is sent, so that no other thread's command overtakes it. Not the lock of `shared`:
        // a session that turns out to be lost here ends its events, maybe this one.
        let _telling = self.0.telling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.known_status().is_some() {
            return false;
        }
        if self.0.shared().told.iter().any(|told| told.node == session.node()) {
            return true;
        }
        let peer = self.0.session.as_ref().and_then(|home| session.peer(home)).unwrap_or(Id::NONE);
        _ = session.send(&to_worker::ExpectEvent { event: self.0.id, peer }, &[], &[]);
        let by_peer = self.0.session.as_ref().is_some_and(|home| home.tell_peer(self.0.id, session));
        let mut shared = self.0.shared();
        shared.told.push(Told {
            session: Arc::downgrade(session),
            node: session.node(),
            by_client: !by_peer,
        });
        if by_peer && self.known_status() != Some(Status::NODE_LOST) {
            return true;
        }
        if let Some(status) = self.known_status() {
            drop(shared);
            self.resolve(session, status);
        } else if let Some(home) = &self.0.session {
            // The client relays this event, so it must go on receiving from its home until then.
            home.add_interest();
            shared.callbacks.push(Box::new(|_| ()));
            drop(shared);
            // The session waits for what the home may not have been given yet.
            _ = home.flush();
        }
        true
    }

    /// Tells a session that expects this event how it has ended.
    ///
    /// Does not block: whoever ends events receives for another session, whose worker may take nothing before it is rid of what
    /// it has for us. Two sessions that did so at once would wait in a circle.
    fn resolve(&self, session: &Arc<Session>, status: Status) {
        let call = to_worker::ResolveEvent { event: self.0.id, status: I32::new(status.0.min(0)) };
        if !session.send_at_once(&call, &[]) {
            // The event is kept until then: its release must not come first.
            let (event, session) = (self.clone(), session.clone());
            progress::send_later(Box::new(move || {
                // A lost session has no commands left that wait.
                _ = session.send(&call, &[], &[]);
                _ = session.flush();
                drop(event);
            }));
        }
    }
}

/// An event of a wait list has failed.
#[derive(Debug)]
pub(crate) struct WaitFailed;

impl Inner {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shared = self.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
        for told in shared.told.drain(..) {
            if let Some(session) = told.session.upgrade() {
                session.release_event(self.id);
            }
        }
        if let Some(session) = &self.session {
            session.release_event(self.id);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.0.id)
            .field("status", &self.known_status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_tells_nothing_of_those_before_it() {
        let progress: Arc<Progress> = Arc::default();
        *progress.issue() = 2;
        let event = |serial| Event::new(None, SUBMITTED, Some(progress.mark(serial)));
        event(2).end(Status::INVALID_VALUE, Times::default());
        assert!(!progress.is_idle());
        event(2).end(Status::OK, Times::default());
        assert!(progress.is_idle());
    }
}
