//! Failures that no event of the program tells of.
//!
//! A command that fails because an event of its wait list has failed is told of by its own event alone, as drivers do: the
//! event that failed first has told already. But a command also waits for what the program does not see, such as a
//! transfer between nodes. If that fails, the command did not run, and nothing else would say so.

use std::sync::Arc;

use penstock_wire::Status;

use super::Event;
use crate::session::failure::Failure;

/// What a command waits for.
pub(crate) struct Waits {
    /// The program's wait list.
    listed: Vec<Event>,
    /// What the client added.
    added: Vec<Event>,
}

impl Waits {
    pub(crate) fn new(listed: &[Event], added: &[Event]) -> Self {
        Self { listed: listed.to_vec(), added: added.to_vec() }
    }

    /// Notes how the command has ended, if nothing else tells of that.
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
            // It may be the one that has failed, and this process has not heard of it yet.
            (None, Some(open)) => open.when_ended(move |_| self.tell(failure, status)),
            (None, None) => failure.note(Status::OUT_OF_RESOURCES),
        }
    }

    /// How the command's own event ends if its worker says that something failed which the command waited for. Where the
    /// program's wait list has ended well, that is how a transfer failed, of which the program has no event.
    pub(crate) fn own_status(&self, status: Status) -> Status {
        let has_ended_well =
            |event: &Event| event.raw_status().is_some_and(|status| !status.is_error());
        let is_of_added =
            status == Status::WAIT_LIST_FAILED && self.listed.iter().all(has_ended_well);
        self.cause().filter(|_| is_of_added).unwrap_or(status)
    }

    /// Whether [`Waits::tell`] may have something to tell of a command that has ended like this.
    pub(crate) fn may_tell(&self, status: Status) -> bool {
        status == Status::WAIT_LIST_FAILED && !self.listed.iter().any(has_failed)
    }

    /// The first failure among what the client added that is not itself the failure of something else.
    fn cause(&self) -> Option<Status> {
        let mut statuses = self.added.iter().filter_map(Event::raw_status);
        statuses.find(|status| status.is_error() && *status != Status::WAIT_LIST_FAILED)
    }
}

fn has_failed(event: &Event) -> bool {
    event.raw_status().is_some_and(Status::is_error)
}
