//! Events. An event stands for the completion of one command.

mod sending;
mod told;
mod waits;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use penstock_cl_sys::CL_SUBMITTED;
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
pub use penstock_wire::Times;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status};

use crate::error::Result;
use crate::issued::{Awaited, Mark, Progress, take_for_ended};
use crate::progress;
use crate::session::failure::Failure;
use crate::session::{Ending, Session, Target};
use crate::summary::{self, Reason};
use sending::Stage;
use told::Told;
pub(crate) use told::wire_waits;
use waits::Waits;

/// Hook that runs, in the thread that ends an event, before other threads hear of the end.
type Hook = Box<dyn FnOnce(Status) + Send>;

/// The completion of one command, or a user event. Clones name the same event.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<Inner>);

type Callback = Box<dyn FnOnce(Status) + Send>;

pub(crate) struct Inner {
    pub(crate) id: Id<kind::Event>,
    /// The session that runs the command, or `None` for an event that ends in the client.
    session: Option<Arc<Session>>,
    /// [`CL_SUBMITTED`], or the final status.
    status: AtomicI32,
    times: OnceLock<Times>,
    /// The command's place in its queue, if this end implies all earlier ends. Set before sending.
    mark: OnceLock<Mark>,
    /// Whether the command was sent, or never will be. Waiting threads receive only after that, and
    /// [`Stage`] counts only before.
    is_sent: AtomicBool,
    /// Whether a blocking call has returned, so that the program takes the command for ended.
    is_taken_for_ended: AtomicBool,
    /// Whether a blocking write returns at the end of this event, not when its bytes are taken.
    returns_at_end: AtomicBool,
    /// Earlier commands that have still to write the program's memory. Their ends are told first.
    behind: Lock<Vec<Event>>,
    /// Whether `behind` may have open events.
    is_behind: AtomicBool,
    /// In an out-of-order queue, the events before this command. Their ends may be told later.
    after: Lock<Vec<Weak<dyn Awaited>>>,
    telling: Lock<()>,
    shared: Lock<Shared>,
}

#[derive(Default)]
struct Shared {
    stage: Stage,
    callbacks: Vec<Callback>,
    hooks: Vec<Hook>,
    /// Where a failure is noted if the program does not hold the event.
    report: Option<Arc<Failure>>,
    /// Whether a place to note a failure was given. A failure is told once.
    is_reported: bool,
    /// The events that the command waits for, if they are more than the program's wait list.
    waits: Option<Box<Waits>>,
    /// Sessions that expect this event although another session, or the client, ends it.
    told: Vec<Told>,
}

impl Event {
    /// Makes the event of a command of `session`. `is_sent` is false if the command is held back.
    pub(crate) fn of_command(session: &Arc<Session>, id: Id<kind::Event>, is_sent: bool) -> Self {
        Self::new(Some(session.clone()), id, CL_SUBMITTED, is_sent)
    }

    /// Makes an event that the client itself ends, by [`Event::set_status`].
    pub(crate) fn of_client(id: Id<kind::Event>) -> Self {
        Self::new(None, id, CL_SUBMITTED, true)
    }

    /// Makes an event that has ended already.
    pub fn ended(status: Status) -> Self {
        Self::new(None, crate::ids::next_id(), status.0.min(0), true)
    }

    fn new(session: Option<Arc<Session>>, id: Id<kind::Event>, status: i32, is_sent: bool) -> Self {
        Self(Arc::new(Inner {
            id,
            session,
            status: AtomicI32::new(status),
            times: OnceLock::new(),
            mark: OnceLock::new(),
            is_sent: AtomicBool::new(is_sent),
            is_taken_for_ended: AtomicBool::new(false),
            returns_at_end: AtomicBool::new(false),
            behind: Lock::default(),
            is_behind: AtomicBool::new(false),
            after: Lock::default(),
            telling: Lock::new(()),
            shared: Lock::default(),
        }))
    }

    /// Sets the command's place in its queue.
    pub(crate) fn set_mark(&self, mark: Mark) {
        _ = self.0.mark.set(mark);
    }

    /// Sets the commands whose ends are told before this one's.
    pub(crate) fn set_behind(&self, behind: Vec<Self>) {
        if !behind.is_empty() && !planted(Defect::EventEarly) {
            *self.0.behind.lock() = behind;
            self.0.is_behind.store(true, Ordering::Release);
        }
    }

    /// Sets the events that the command waits for: those of the program, and those that we added.
    pub(crate) fn set_waits(&self, listed: &[Self], added: &[Self]) {
        if !added.is_empty() {
            self.0.shared.lock().waits = Some(Box::new(Waits::new(listed, added)));
        }
    }

    /// Sets the events that the command comes after. If it ends well they have ended, told or not.
    pub(crate) fn set_after(&self, after: Vec<Weak<dyn Awaited>>) {
        *self.0.after.lock() = after;
    }

    /// Returns whether this end is told before the ends of all later commands of this queue.
    pub(crate) fn is_told_before(&self, progress: &Arc<Progress>) -> bool {
        self.0.mark.get().is_some_and(|mark| Arc::ptr_eq(&mark.progress, progress))
    }

    /// Returns a reference to this event for events and queues that come after it.
    pub(crate) fn awaited(&self) -> Weak<dyn Awaited> {
        Arc::<Inner>::downgrade(&self.0)
    }

    /// Has `session` end this event when its worker tells the end. Must precede the command.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn expect_at(&self, session: &Session) -> Result<()> {
        session.expect(self.0.id, self.0.clone())
    }

    /// As [`Event::expect_at`], with the target for the bytes of the read.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn expect_read_at(&self, session: &Session, target: Box<dyn Target>) -> Result<()> {
        session.expect_read(self.0.id, self.0.clone(), target)
    }

    /// Returns whether the client itself ends this event.
    pub(crate) fn is_of_client(&self) -> bool {
        self.0.session.is_none()
    }

    /// Returns the open events in `behind` and forgets the others, so that a long pipeline of
    /// events does not keep all of them alive.
    fn behind(&self) -> Vec<Self> {
        if !self.0.is_behind.load(Ordering::Acquire) {
            return Vec::new();
        }
        let (open, ended) = {
            let mut behind = self.0.behind.lock();
            let (open, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut *behind)
                .into_iter()
                .partition(|event| event.raw_status().is_none());
            behind.clone_from(&open);
            self.0.is_behind.store(!open.is_empty(), Ordering::Release);
            (open, ended)
        };
        // Dropped after the lock is released: these may be the last references.
        drop(ended);
        open
    }

    /// Has a blocking write return at this end: the program would notice an earlier open command.
    pub(crate) fn note_open_before(&self) {
        self.0.returns_at_end.store(true, Ordering::Release);
    }

    /// Returns whether earlier commands were open when this one was sent, and the program would
    /// notice if this one ended before them: they write the program's memory, or it has their
    /// events.
    pub(crate) fn returns_at_end(&self) -> bool {
        self.0.returns_at_end.load(Ordering::Acquire)
    }

    /// Notes that a blocking call has returned, so that the program takes this command and all
    /// before it in the queue for ended. Questions for their status wait for their ends.
    pub(crate) fn take_for_ended(&self) {
        take_for_ended(vec![self.0.clone()]);
    }

    /// Returns the status that the worker or the client has told, or `None` before the end.
    fn raw_status(&self) -> Option<Status> {
        let status = self.0.status.load(Ordering::Acquire);
        (status <= 0).then_some(Status(status))
    }

    /// Returns the final status if this process knows it without asking, otherwise `None`.
    pub fn known_status(&self) -> Option<Status> {
        self.raw_status().filter(|_| self.behind().is_empty())
    }

    /// Returns the final status, or `None` if no news of the end has arrived. Waits for a command
    /// that the program takes for ended, because a blocking call or a later blocking write of its
    /// queue has returned.
    pub fn poll(&self) -> Option<Status> {
        if self.known_status().is_none() {
            let is_before = |mark: &Mark| mark.progress.is_settled(mark.serial);
            let is_taken = self.0.is_taken_for_ended.load(Ordering::Acquire);
            let is_over = is_taken || self.0.mark.get().is_some_and(is_before);
            // The program itself may have to release a held command, so this does not wait for it.
            if is_over && self.is_sent() && !planted(Defect::TimesEarly) {
                return Some(self.wait());
            }
            let behind = self.behind();
            let open =
                [self].into_iter().chain(&behind).filter(|event| event.raw_status().is_none());
            for session in open.filter_map(|event| event.0.session.as_ref()) {
                session.poll();
            }
        }
        self.known_status()
    }

    /// Waits until the event has ended, and returns its status. The loss of its node ends it.
    pub fn wait(&self) -> Status {
        if let Some(status) = self.known_status() {
            return status;
        }
        let tally = match &self.0.session {
            Some(session) => session.tally(),
            None => summary::others(),
        };
        summary::within(tally, Reason::Event, || {
            self.wait_raw();
            self.behind().iter().for_each(Self::wait_raw);
        });
        self.raw_status().unwrap_or(Status::NODE_LOST)
    }

    fn wait_raw(&self) {
        // The thread that sends a command may tell its end, and wakes no thread that receives.
        self.wait_until_sent();
        let has_ended = || self.raw_status().is_some();
        let Some(session) = &self.0.session else {
            return progress::wait_for_user_event(&has_ended);
        };
        session.wait(Reason::Event, &has_ended);
        // If the session is lost, another thread may just tell a good end. The first decides.
        if !has_ended() && !planted(Defect::OpenWhenLost) {
            self.end(Status::NODE_LOST, Times::default());
        }
    }

    /// Keeps the session receiving until the event has ended, although no thread waits for it.
    pub(crate) fn keep_receiving(&self) {
        if let Some(session) = &self.0.session {
            let mut shared = self.0.shared.lock();
            if self.raw_status().is_none() {
                session.add_interest();
                let session = session.clone();
                shared.hooks.push(Box::new(move |_| session.drop_interest()));
            }
        }
    }

    /// Calls `hook` with the final status when the event ends, in the thread that ends it and
    /// before other threads can see the end. If the event has ended already, calls `hook` at once.
    /// `hook` must not block.
    pub(crate) fn when_ended(&self, hook: impl FnOnce(Status) + Send + 'static) {
        let mut shared = self.0.shared.lock();
        match self.raw_status() {
            None => shared.hooks.push(Box::new(hook)),
            Some(status) => {
                drop(shared);
                hook(status);
            }
        }
    }

    /// Calls `callback` with the final status in the client's callback thread, never in the
    /// caller's.
    pub fn on_complete(&self, callback: impl FnOnce(Status) + Send + 'static) {
        let mut shared = self.0.shared.lock();
        match self.raw_status() {
            Some(status) => {
                drop(shared);
                self.call_back(Box::new(callback), status);
            }
            None => {
                shared.callbacks.push(Box::new(callback));
                if let Some(session) = &self.0.session {
                    session.add_interest();
                }
            }
        }
    }

    /// Calls `callback` as soon as the events in `behind` have ended.
    fn call_back(&self, callback: Callback, status: Status) {
        match self.behind().first().filter(|_| !planted(Defect::CallbackEarly)) {
            None => progress::call_back(Box::new(move || callback(status))),
            Some(open) => {
                open.keep_receiving();
                let event = self.clone();
                open.when_ended(move |_| event.call_back(callback, status));
            }
        }
    }

    /// Has a failure noted in `failure`, now or at the end. The program does not hold the event.
    pub(crate) fn report_to(&self, failure: &Arc<Failure>) {
        let mut shared = self.0.shared.lock();
        if std::mem::replace(&mut shared.is_reported, true) {
            return;
        }
        match self.raw_status() {
            Some(status) => match shared.waits.take() {
                Some(waits) => waits.tell(failure.clone(), status),
                None => failure.note(status),
            },
            None => shared.report = Some(failure.clone()),
        }
    }

    /// Returns the command's times: zero before its end, and in a queue that does not profile.
    pub fn times(&self) -> Times {
        self.0.times.get().copied().unwrap_or_default()
    }

    /// Ends an event of the client. Returns `false` if it had ended already.
    pub(crate) fn set_status(&self, status: Status) -> bool {
        self.set_ended(status, Times::default())
    }

    /// As [`Event::set_status`], with the times of the client's work.
    pub(crate) fn set_ended(&self, status: Status, times: Times) -> bool {
        let ended = self.end(status, times);
        progress::user_event_ended();
        ended
    }

    /// Ends the event and tells its dependents. Returns `false` if it had ended already, or if the
    /// thread that sends the command will end it, see [`Stage`].
    pub(crate) fn end(&self, status: Status, times: Times) -> bool {
        let is_sent = self.0.is_sent.load(Ordering::Acquire);
        let is_told = is_sent || self.0.shared.lock().stage.end(status, times);
        is_told && self.tell_end(status, times)
    }

    fn tell_end(&self, status: Status, times: Times) -> bool {
        if !status.is_error() {
            take_for_ended(self.0.before());
        }
        drop(std::mem::take(&mut *self.0.after.lock()));
        let mut shared = self.0.shared.lock();
        if self.raw_status().is_some() {
            return false;
        }
        // Times and failures are in place before any thread can see that the event has ended.
        _ = self.0.times.set(times);
        let waits = shared.waits.take();
        // A lost worker tells its peers nothing, so the client does.
        let lost = status == Status::NODE_LOST;
        let status = waits.as_ref().map_or(status, |waits| waits.own_status(status));
        let mut of_no_use = None;
        match (shared.report.take(), waits) {
            (Some(report), Some(waits)) => waits.tell(report, status),
            (Some(report), None) => report.note(status),
            // A later call of `report_to` may still say where to note the failure.
            (None, Some(waits)) if waits.may_tell(status) => shared.waits = Some(waits),
            (None, waits) => of_no_use = waits,
        }
        self.0.status.store(status.0.min(0), Ordering::Release);
        // If a command was never sent, or if its node is lost, its end says nothing about earlier
        // commands.
        if let Some(mark) = self.0.mark.get().filter(|_| !status.is_error()) {
            mark.progress.reach(mark.serial);
        }
        _ = self.behind();
        let callbacks = std::mem::take(&mut shared.callbacks);
        let hooks = std::mem::take(&mut shared.hooks);
        let told = shared.told.iter().filter(|told| told.by_client || lost);
        let told: Vec<_> = told.map(|told| told.session.clone()).collect();
        drop(shared);
        drop(of_no_use);
        for hook in hooks {
            hook(status);
        }
        for session in told.iter().filter_map(Weak::upgrade) {
            self.resolve(&session, status);
        }
        for callback in callbacks {
            if let Some(session) = &self.0.session {
                session.drop_interest();
            }
            self.call_back(callback, status);
        }
        true
    }
}

impl Inner {
    /// Returns the events that have ended if this one has ended well.
    fn before(&self) -> Vec<Arc<dyn Awaited>> {
        let mut before: Vec<_> = self.after.lock().iter().filter_map(Weak::upgrade).collect();
        if let Some(mark) = self.mark.get() {
            before.extend(mark.progress.awaited_up_to(mark.serial));
        }
        before
    }
}

impl Awaited for Inner {
    fn id(&self) -> u64 {
        self.id.get()
    }

    fn has_ended(&self) -> bool {
        self.status.load(Ordering::Acquire) <= 0
    }

    fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }

    fn take_for_ended(&self) -> Vec<Arc<dyn Awaited>> {
        self.is_taken_for_ended.store(true, Ordering::Release);
        if let Some(mark) = self.mark.get() {
            mark.progress.settle(mark.serial);
        }
        self.before()
    }
}

impl Ending for Inner {
    fn end(self: Arc<Self>, status: Status, times: Times) {
        Event(self).end(status, times);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shared = self.shared.get_mut();
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
            .field("status", &self.raw_status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_tells_nothing_of_those_before_it() {
        let progress: Arc<Progress> = Arc::default();
        progress.issue().count();
        progress.issue().count();
        let event = |serial| {
            let event = Event::of_client(crate::ids::next_id());
            event.set_mark(progress.mark(serial));
            event
        };
        event(2).end(Status::INVALID_VALUE, Times::default());
        assert!(!progress.is_idle());
        event(2).end(Status::OK, Times::default());
        assert!(progress.is_idle());
    }
}
