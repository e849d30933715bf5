//! How far queues have come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far a queue has come, as far as this process knows without asking.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Locked from a command's counting until it is sent: else another thread could send a later one first, and its end
    /// would tell nothing of this one.
    issuing: Mutex<()>,
    /// Commands so far. Changes only under the lock.
    issued: AtomicU64,
    reached: AtomicU64,
    /// The last blocking write that has returned: the program takes everything up to it for ended.
    settled: AtomicU64,
}

/// A command's place in its queue, where its end tells the end of all before it: workers tell ends in the order of the commands.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) progress: Arc<Progress>,
    pub(crate) serial: u64,
}

/// Keeps other threads from enqueueing into a queue.
pub(crate) struct Issuing<'a> {
    progress: &'a Progress,
    _lock: MutexGuard<'a, ()>,
}

impl Issuing<'_> {
    /// Commands so far.
    pub(crate) fn issued(&self) -> u64 {
        self.progress.issued.load(Ordering::Relaxed)
    }

    /// Counts one more. Its number.
    pub(crate) fn count(&mut self) -> u64 {
        let issued = self.issued() + 1;
        self.progress.issued.store(issued, Ordering::Release);
        issued
    }

    /// Whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.progress.may_be_idle()
    }
}

impl Progress {
    /// Keeps other threads from enqueueing, to count a command and send it.
    pub(crate) fn issue(&self) -> Issuing<'_> {
        Issuing { progress: self, _lock: self.issuing.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// All commands up to this one have ended.
    pub(crate) fn reach(&self, serial: u64) {
        self.reached.fetch_max(serial, Ordering::AcqRel);
    }

    /// Whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.issue().is_idle()
    }

    /// The same without the lock, as far as other threads do not enqueue at this moment.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.reached.load(Ordering::Acquire) >= self.issued.load(Ordering::Acquire)
    }

    /// A blocking write has returned, with this number or a later one.
    pub(crate) fn settle(&self, serial: u64) {
        self.settled.fetch_max(serial, Ordering::AcqRel);
    }

    /// Whether a blocking write with this number or a later one has returned.
    pub(crate) fn is_settled(&self, serial: u64) -> bool {
        self.settled.load(Ordering::Acquire) >= serial
    }

    /// Whether a blocking write has returned that has not ended, as far as is known.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.settled.load(Ordering::Acquire) > self.reached.load(Ordering::Acquire)
    }

    pub(crate) fn mark(self: &Arc<Self>, serial: u64) -> Mark {
        Mark { progress: self.clone(), serial }
    }
}
