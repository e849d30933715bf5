//! The way in which the host learns that everything its kernels have sent has arrived.

use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::state::lock;
use crate::wake::Wake;

#[derive(Debug, Default)]
pub(crate) struct Settled {
    work: Mutex<Work>,
    changed: Condvar,
}

/// Numbered requests of the host.
#[derive(Debug, Default)]
struct Work {
    /// Whether a proxy runs.
    serves: bool,
    asked: u64,
    taken: u64,
    answered: u64,
}

impl Settled {
    /// Records the start of the proxy.
    pub(super) fn begin(&self) {
        lock(&self.work).serves = true;
    }

    /// Records the end of the proxy.
    pub(super) fn end(&self) {
        lock(&self.work).serves = false;
        self.changed.notify_all();
    }

    /// Returns a request that the proxy has not taken yet.
    pub(super) fn request(&self) -> Option<u64> {
        let mut work = lock(&self.work);
        let is_new = work.asked > work.taken;
        work.taken = work.asked;
        is_new.then_some(work.asked)
    }

    pub(super) fn answer(&self, request: u64) {
        lock(&self.work).answered = request;
        self.changed.notify_all();
    }

    /// Waits until all in the rings has arrived. `false`: the deadline passed or the proxy ended.
    pub(crate) fn wait(&self, wake: &Wake, deadline: Instant) -> bool {
        let mut work = lock(&self.work);
        if !work.serves {
            return true;
        }
        work.asked += 1;
        let asked = work.asked;
        wake.ring();
        while work.serves && work.answered < asked {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            work = match self.changed.wait_timeout(work, left) {
                Ok((work, _)) => work,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        work.answered >= asked
    }
}
