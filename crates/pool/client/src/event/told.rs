//! Announcements of events to sessions that do not end them, so that commands there can wait.

use std::sync::{Arc, Weak};

use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{I32, Id, Status};

use super::Event;
use crate::progress;
use crate::session::Session;

/// A session that expects an event although another session, or the client, ends it.
pub(super) struct Told {
    pub(super) session: Weak<Session>,
    pub(super) node: usize,
    /// Whether the client itself tells the end (user events, relayed events).
    pub(super) by_client: bool,
}

impl Event {
    /// Announces the event to `session`, so that commands there can wait for it. Returns an error
    /// if the event has failed, and `None` if the event has ended otherwise.
    pub(crate) fn id_for(
        &self,
        session: &Arc<Session>,
    ) -> Result<Option<Id<kind::Event>>, WaitFailed> {
        let own = self.0.session.as_ref().is_some_and(|own| Arc::ptr_eq(own, session));
        let ended = self.raw_status();
        // One value decides. The event may fail at any time, and a second look could take the
        // failure for an end.
        match ended.or_else(|| if own { None } else { self.tell(session) }) {
            None => Ok(Some(self.0.id)),
            Some(status) if status.is_error() => Err(WaitFailed),
            Some(_) => Ok(None),
        }
    }

    /// Prepares for another session that will wait for this event. The event's worker holds the
    /// command back until the bytes of earlier reads are on the link, which has room only if a
    /// thread receives. The program may wait for the other session alone.
    pub(crate) fn receive_past_reads(&self) {
        if self.0.session.as_ref().is_some_and(|session| session.has_reads()) {
            self.keep_receiving();
        }
    }

    /// Announces the event to a session that does not end it. If the event has ended already,
    /// announces nothing and returns its status.
    fn tell(&self, session: &Arc<Session>) -> Option<Status> {
        // Held while the announcement is sent, so that no other thread's command overtakes it. Not
        // the lock of `shared`: a session that is found lost here ends its events, possibly this
        // one.
        let _telling = self.0.telling.lock();
        if let Some(status) = self.raw_status() {
            return Some(status);
        }
        if self.0.shared.lock().told.iter().any(|told| told.node == session.node()) {
            return None;
        }
        self.receive_past_reads();
        let peer = self.0.session.as_ref().and_then(|home| session.peer(home)).unwrap_or(Id::NONE);
        _ = session.send(&to_worker::ExpectEvent { event: self.0.id, peer }, &[], &[]);
        let by_peer =
            self.0.session.as_ref().is_some_and(|home| home.tell_peer(self.0.id, session));
        let mut shared = self.0.shared.lock();
        shared.told.push(Told {
            session: Arc::downgrade(session),
            node: session.node(),
            by_client: !by_peer,
        });
        if by_peer && self.raw_status() != Some(Status::NODE_LOST) {
            return None;
        }
        if let Some(status) = self.raw_status() {
            drop(shared);
            self.resolve(session, status);
        } else if let Some(home) = &self.0.session {
            // The client relays this event, so it must receive from its home session until the end.
            home.add_interest();
            shared.callbacks.push(Box::new(|_| ()));
            drop(shared);
            // The other session waits for commands that may not have been flushed to the home
            // session.
            _ = home.flush();
        }
        None
    }

    /// Tells a session that expects this event how it has ended.
    ///
    /// Does not block. The ending thread receives for another session, whose worker may take
    /// nothing until the client has taken what that worker sent. Two sessions that blocked here
    /// would wait in a circle.
    pub(super) fn resolve(&self, session: &Arc<Session>, status: Status) {
        let call = to_worker::ResolveEvent { event: self.0.id, status: I32::new(status.0.min(0)) };
        if !session.send_at_once(&call, &[]) {
            // The job keeps the event alive, because the release of the event must not come first.
            let (event, session) = (self.clone(), session.clone());
            progress::send_later(Box::new(move || {
                // A lost session has no more commands that wait.
                _ = session.send(&call, &[], &[]);
                _ = session.flush();
                drop(event);
            }));
        }
    }
}

/// Returns the ids of `events` for `session`, without events that have ended, well or not.
pub(crate) fn wire_waits(events: &[Event], session: &Arc<Session>) -> Vec<Id<kind::Event>> {
    let mut ids: Vec<_> =
        events.iter().filter_map(|event| event.id_for(session).ok().flatten()).collect();
    // Segments of one object have the same transfers and commands.
    ids.sort_unstable_by_key(|id| id.get());
    ids.dedup();
    ids
}

/// The error that an event of a wait list has failed.
#[derive(Debug)]
pub(crate) struct WaitFailed;
