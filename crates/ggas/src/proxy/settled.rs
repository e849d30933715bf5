//! The way in which the host learns that everything its kernels have sent has arrived.

use std::time::Instant;

use penstock_process::{Lock, Signal};

use crate::wake::Wake;

#[derive(Debug, Default)]
pub(crate) struct Settled {
    work: Lock<Work>,
    changed: Signal,
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
        self.work.lock().serves = true;
    }

    /// Records the end of the proxy.
    pub(super) fn end(&self) {
        self.work.lock().serves = false;
        self.changed.notify_all();
    }

    /// Returns a request that the proxy has not taken yet.
    pub(super) fn request(&self) -> Option<u64> {
        let mut work = self.work.lock();
        let is_new = work.asked > work.taken;
        work.taken = work.asked;
        is_new.then_some(work.asked)
    }

    pub(super) fn answer(&self, request: u64) {
        self.work.lock().answered = request;
        self.changed.notify_all();
    }

    /// Waits until all in the rings has arrived. `false`: the deadline passed or the proxy ended.
    pub(crate) fn wait(&self, wake: &Wake, deadline: Instant) -> bool {
        let mut work = self.work.lock();
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
            work = self.changed.wait_timeout(work, left).0;
        }
        work.answered >= asked
    }
}
