//! What all commands have in common: their wait list, what they use, and their event.

use std::sync::Arc;

use penstock_wire::Id;
use penstock_wire::Status;
use penstock_wire::id::kind;

use crate::error::Result;
use crate::event::Event;
use crate::queue::{Queue, Want};
use crate::residency::{Claim, Use, Waits};
use crate::session::{Session, Target};

/// A command about to be sent.
pub(crate) struct Issue {
    /// The wait list, as the queue's worker knows it.
    pub(crate) waits: Vec<Id<kind::Event>>,
    /// The command's event, if it has one.
    pub(crate) event: Option<Event>,
}

impl Issue {
    /// The event's name on the wire.
    pub(crate) fn event_id(&self) -> Id<kind::Event> {
        self.event.as_ref().map_or(Id::NONE, |event| event.0.id)
    }
}

impl Queue {
    /// Sends a command, behind the blocking writes of other queues: makes what it uses current, translates its wait list, makes its event,
    /// calls `send`.
    pub(crate) fn command(
        &self,
        uses: &[Use<'_>],
        waits: &[Event],
        want: Want,
        target: Option<Box<dyn Target>>,
        send: impl FnOnce(&Session, &Issue) -> Result<()>,
    ) -> Result<Option<Event>> {
        let mut unsettled = self.unsettled();
        if unsettled.is_empty() {
            return self.command_alone(uses, waits, want, target, send);
        }
        // That one of them has failed is no failure of this one.
        let is_lost = |event: &Event| event.id_for(self.session()).is_err();
        unsettled.retain(|event| !is_lost(event));
        self.command_alone(uses, &[waits, &unsettled].concat(), want, target, send)
    }

    /// As [`Queue::command`], for one that waits for its own queue and its list alone.
    pub(crate) fn command_alone(
        &self,
        uses: &[Use<'_>],
        waits: &[Event],
        want: Want,
        target: Option<Box<dyn Target>>,
        send: impl FnOnce(&Session, &Issue) -> Result<()>,
    ) -> Result<Option<Event>> {
        let session = self.session();
        let mut ids = Vec::new();
        for event in waits {
            match event.id_for(session) {
                Ok(Some(id)) => ids.push(id),
                Ok(None) => {}
                // "... the execution status of the command is CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST."
                Err(_) => return Ok(Some(Event::ended(Status::WAIT_LIST_FAILED))),
            }
        }
        let spans = !self.context().is_single();
        let mut claim = spans.then(|| Claim::new(uses));
        if let Some(claim) = &mut claim {
            let mut waits = Waits::default();
            claim.acquire(self.place(), &mut waits)?;
            ids.extend(wire_waits(&waits.ends, session));
            for event in &waits.arrivals {
                match event.id_for(session) {
                    Ok(id) => ids.extend(id),
                    Err(_) => return Ok(Some(Event::ended(Status::WAIT_LIST_FAILED))),
                }
            }
        }
        // Segments of one object have the same transfers.
        ids.sort_unstable_by_key(|id| id.get());
        ids.dedup();
        let concerns_others = want == Want::Settled && self.concerns_others();
        let wanted =
            want == Want::Event || concerns_others || target.is_some() || (spans && !uses.is_empty());
        let mut issued = self.progress().issue();
        *issued += 1;
        let serial = *issued;
        let event = wanted.then(|| {
            let mark = (!self.order().is_none()).then(|| self.progress().mark(serial));
            Event::of_command(session, mark)
        });
        match (&event, target) {
            (Some(event), Some(target)) => session.expect_read(event, target)?,
            (Some(event), None) => session.expect(event)?,
            (None, _) => {}
        }
        let issue = Issue { waits: ids, event };
        send(session, &issue)?;
        drop(issued);
        if issue.event.is_some() {
            session.poll_now_and_then();
        }
        if let Some((claim, event)) = claim.zip(issue.event.as_ref()) {
            claim.record(self.place(), self.order(), event);
        }
        Ok(issue.event)
    }
}

/// Names of `events` for `session`; those that have ended, well or not, are left out.
pub(crate) fn wire_waits(events: &[Event], session: &Arc<Session>) -> Vec<Id<kind::Event>> {
    let mut ids: Vec<_> = events.iter().filter_map(|event| event.id_for(session).ok().flatten()).collect();
    // Segments of one object have the same transfers and commands.
    ids.sort_unstable_by_key(|id| id.get());
    ids.dedup();
    ids
}
