//! Reads that nobody waits for: that one failed is told with the next wait, as for all other commands.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use penstock_client::Event;
use penstock_wire::Status;

/// The reads of a stream whose end nobody has looked at, in their order.
#[derive(Debug, Default)]
pub(crate) struct Unseen(Mutex<VecDeque<Event>>);

impl Unseen {
    /// A read was sent. So many are kept as are under way.
    pub(crate) fn add(&self, read: Event) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while reads.front().and_then(Event::known_status).is_some_and(|status| !status.is_error()) {
            reads.pop_front();
        }
        reads.push_back(read);
    }

    /// The first failure among those that have ended, once.
    pub(crate) fn failure(&self) -> Option<Status> {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(status) = reads.front().and_then(Event::known_status) {
            reads.pop_front();
            if status.is_error() {
                return Some(status);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_is_told_once_and_in_order() {
        let (unseen, pending) = (Unseen::default(), penstock_client::user_event());
        let failed = |code| Event::ended(Status(code));
        for read in [Event::ended(Status::OK), failed(-5), failed(-6), pending.clone(), failed(-7)]
        {
            unseen.add(read);
        }
        assert_eq!(unseen.failure(), Some(Status(-5)));
        assert_eq!(unseen.failure(), Some(Status(-6)));
        // What comes behind one that has not ended has not ended either.
        assert_eq!(unseen.failure(), None);
        penstock_client::set_user_event(&pending, Status::OK);
        assert_eq!(unseen.failure(), Some(Status(-7)));
        assert_eq!(unseen.failure(), None);
        // Those that went well are not kept.
        (0..100).for_each(|_| unseen.add(Event::ended(Status::OK)));
        assert_eq!(unseen.0.lock().unwrap().len(), 1);
    }
}
