//! Reads whose callers do not wait. The next wait reports their failures, as for all other
//! commands.

use std::collections::VecDeque;

use penstock_client::Event;
use penstock_process::Lock;
use penstock_wire::Status;

/// Reads of a stream whose results nobody has seen, in their order.
#[derive(Debug, Default)]
pub(crate) struct UnawaitedReads(Lock<VecDeque<Event>>);

impl UnawaitedReads {
    /// Adds a read, and drops those before it that are known to have succeeded.
    pub(crate) fn add(&self, read: Event) {
        let mut reads = self.0.lock();
        while reads.front().and_then(Event::known_status).is_some_and(|status| !status.is_error()) {
            reads.pop_front();
        }
        reads.push_back(read);
    }

    /// Returns the first failure among the reads that have ended, once.
    pub(crate) fn failure(&self) -> Option<Status> {
        let mut reads = self.0.lock();
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
        let (reads, pending) = (UnawaitedReads::default(), penstock_client::user_event());
        let failed = |code| Event::ended(Status(code));
        for read in [Event::ended(Status::OK), failed(-5), failed(-6), pending.clone(), failed(-7)]
        {
            reads.add(read);
        }
        assert_eq!(reads.failure(), Some(Status(-5)));
        assert_eq!(reads.failure(), Some(Status(-6)));
        // A failure behind an unfinished read is not reported yet.
        assert_eq!(reads.failure(), None);
        penstock_client::set_user_event(&pending, Status::OK);
        assert_eq!(reads.failure(), Some(Status(-7)));
        assert_eq!(reads.failure(), None);
        // Successful reads are not kept.
        (0..100).for_each(|_| reads.add(Event::ended(Status::OK)));
        assert_eq!(reads.0.lock().len(), 1);
    }
}
