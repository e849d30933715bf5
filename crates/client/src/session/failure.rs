//! Failures of commands that nobody holds an event of.
//!
//! Commands are sent and not waited for, so the program has been told that such a command was enqueued. What is known of its failure
//! is kept for its queue, and the next call that waits for the queue returns it, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use penstock_wire::id::kind;
use penstock_wire::{Id, Status};

use super::{Session, lock};

/// The first failure of a queue that the program has not been told yet; 0 for none.
#[derive(Debug, Default)]
pub(crate) struct Failure(AtomicI32);

impl Failure {
    /// Keeps a failure, unless an earlier one has not been told yet.
    ///
    /// A command whose wait list has failed is none: drivers tell of it by its event alone, and the event that failed has told already.
    pub(crate) fn note(&self, status: Status) {
        if status.is_error() && status != Status::WAIT_LIST_FAILED {
            // Another one was first.
            _ = self.0.compare_exchange(
                Status::OK.0,
                status.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// The failure, which counts as told from now on.
    pub(crate) fn take(&self) -> Option<Status> {
        if self.0.load(Ordering::Acquire) == Status::OK.0 {
            return None;
        }
        Some(Status(self.0.swap(Status::OK.0, Ordering::AcqRel))).filter(|status| status.is_error())
    }
}

impl Session {
    /// Makes a queue known. What the worker tells of a queue that is not known is ignored, so it can make nothing pile up.
    pub(crate) fn watch_queue(&self, queue: Id<kind::Queue>) -> Arc<Failure> {
        lock(&self.failures).entry(queue.get()).or_default().clone()
    }

    /// Forgets a queue.
    pub(crate) fn forget_queue(&self, queue: Id<kind::Queue>) {
        lock(&self.failures).remove(&queue.get());
    }

    pub(super) fn queue_failed(&self, queue: Id<kind::Queue>, status: Status) {
        let failure = lock(&self.failures).get(&queue.get()).cloned();
        if let Some(failure) = failure {
            failure.note(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_once() {
        let failure = Failure::default();
        assert_eq!(failure.take(), None);
        for status in [Status::OK, Status::WAIT_LIST_FAILED, Status(-5), Status(-54)] {
            failure.note(status);
        }
        assert_eq!(failure.take(), Some(Status(-5)));
        assert_eq!(failure.take(), None);
    }
}
