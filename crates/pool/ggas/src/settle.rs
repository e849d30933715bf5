//! How the host learns that everything its kernels have sent has arrived: it asks the proxy, which
//! answers when its rings are empty and its peers have confirmed what it sent.

use std::time::Instant;

use penstock_process::{Lock, Signal};

use crate::bell::Bell;

#[derive(Debug, Default)]
pub(crate) struct SettleRequests {
    counts: Lock<RequestCounts>,
    changed: Signal,
}

/// Numbered requests of the host.
#[derive(Debug, Default)]
struct RequestCounts {
    /// Whether a proxy runs.
    has_proxy: bool,
    asked: u64,
    taken: u64,
    answered: u64,
}

impl SettleRequests {
    /// Records the start of the proxy.
    pub(crate) fn proxy_started(&self) {
        self.counts.lock().has_proxy = true;
    }

    /// Records the end of the proxy.
    pub(crate) fn proxy_ended(&self) {
        self.counts.lock().has_proxy = false;
        self.changed.notify_all();
    }

    /// Returns a request that the proxy has not taken yet.
    pub(crate) fn next_request(&self) -> Option<u64> {
        let mut counts = self.counts.lock();
        let is_new = counts.asked > counts.taken;
        counts.taken = counts.asked;
        is_new.then_some(counts.asked)
    }

    pub(crate) fn answer(&self, request: u64) {
        self.counts.lock().answered = request;
        self.changed.notify_all();
    }

    /// Waits until everything in the rings has arrived. Returns `false` if the deadline passed or
    /// the proxy ended first.
    pub(crate) fn wait(&self, proxy: &Bell, deadline: Instant) -> bool {
        let mut counts = self.counts.lock();
        if !counts.has_proxy {
            return true;
        }
        counts.asked += 1;
        let asked = counts.asked;
        proxy.ring();
        while counts.has_proxy && counts.answered < asked {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            counts = self.changed.wait_timeout(counts, left).0;
        }
        counts.answered >= asked
    }
}
