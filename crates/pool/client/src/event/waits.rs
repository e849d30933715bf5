//! Failures that no event of the program reports.
//!
//! If a command fails because an event of its wait list has failed, only the command's own event
//! reports that, as with other drivers. The event that failed first has already reported its own
//! failure. But a command also waits for events that the program does not see, such as transfers
//! between nodes. If one of them fails, the command did not run, and nothing else would report it.

use std::sync::Arc;

use penstock_wire::Status;

use super::Event;
use crate::session::failure::Failure;

/// The events that a command waits for.
pub(crate) struct Waits {
    listed: Vec<Event>,
    /// Events that the client added.
    added: Vec<Event>,
}

impl Waits {
    pub(crate) fn new(listed: &[Event], added: &[Event]) -> Self {
        Self { listed: listed.to_vec(), added: added.to_vec() }
    }

    /// Notes how the command has ended, if nothing else reports that.
    pub(crate) fn tell(self: Box<Self>, failure: Arc<Failure>, status: Status) {
        if status != Status::WAIT_LIST_FAILED {
            return failure.note(status);
        }
        if self.listed.iter().any(has_failed) {
            return;
        }
        let open = self.listed.iter().find(|event| event.raw_status().is_none()).cloned();
        match (self.cause(), open) {
            (Some(cause), _) => failure.note(cause),
            // The open event may be the one that has failed, although this process has not heard of
            // it yet.
            (None, Some(open)) => open.when_ended(move |_| self.tell(failure, status)),
            (None, None) => failure.note(Status::OUT_OF_RESOURCES),
        }
    }

    /// Returns the status with which the command's own event ends, if its worker reports `status`.
    /// If the program's wait list has ended well, a reported wait-list failure is that of a
    /// transfer, and the event takes the status of that transfer.
    pub(crate) fn own_status(&self, status: Status) -> Status {
        let has_ended_well =
            |event: &Event| event.raw_status().is_some_and(|status| !status.is_error());
        let is_of_added =
            status == Status::WAIT_LIST_FAILED && self.listed.iter().all(has_ended_well);
        self.cause().filter(|_| is_of_added).unwrap_or(status)
    }

    /// Returns whether [`Waits::tell`] may have something to report about a command that has ended
    /// with `status`.
    pub(crate) fn may_tell(&self, status: Status) -> bool {
        status == Status::WAIT_LIST_FAILED && !self.listed.iter().any(has_failed)
    }

    /// Returns the first failure among the events that the client added, except those that are only
    /// the failure of a wait list.
    fn cause(&self) -> Option<Status> {
        let mut statuses = self.added.iter().filter_map(Event::raw_status);
        statuses.find(|status| status.is_error() && *status != Status::WAIT_LIST_FAILED)
    }
}

fn has_failed(event: &Event) -> bool {
    event.raw_status().is_some_and(Status::is_error)
}
