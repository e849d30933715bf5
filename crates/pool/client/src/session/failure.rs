//! Failures of commands whose events the program does not hold.
//!
//! Such a command is sent and not waited for, and its call has returned success. A failure that
//! becomes known later is kept for the command's queue, and the next call that waits for the queue
//! returns it, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use penstock_wire::id::kind;
use penstock_wire::{Id, Status};

use super::Session;

/// The first failure of a queue that the program has not been told yet, or 0 for none.
#[derive(Debug, Default)]
pub(crate) struct Failure(AtomicI32);

impl Failure {
    /// Keeps a failure, unless an earlier one has not been told yet.
    ///
    /// The failure of a wait list is ignored: as with drivers, only the command's event reports it,
    /// and the event that failed has reported its failure already.
    pub(crate) fn note(&self, status: Status) {
        if status.is_error() && status != Status::WAIT_LIST_FAILED {
            // If this fails, another failure came first.
            _ = self.0.compare_exchange(
                Status::OK.0,
                status.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    /// Returns the failure, which counts as told from now on.
    pub(crate) fn take(&self) -> Option<Status> {
        if self.0.load(Ordering::Acquire) == Status::OK.0 {
            return None;
        }
        Some(Status(self.0.swap(Status::OK.0, Ordering::AcqRel))).filter(|status| status.is_error())
    }
}

impl Session {
    /// Registers a queue. Reports about unregistered queues are ignored, so a worker cannot make
    /// them pile up.
    pub(crate) fn watch_queue(&self, queue: Id<kind::Queue>) -> Arc<Failure> {
        self.failures.lock().entry(queue.get()).or_default().clone()
    }

    /// Stops noting failures of a queue.
    pub(crate) fn forget_queue(&self, queue: Id<kind::Queue>) {
        self.failures.lock().remove(&queue.get());
    }

    pub(super) fn queue_failed(&self, queue: Id<kind::Queue>, status: Status) {
        let failure = self.failures.lock().get(&queue.get()).cloned();
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
