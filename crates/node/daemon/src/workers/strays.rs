//! Core time of workers that no work for their clients explains: see `penstock_quota::Stray`.

use std::time::{Duration, Instant};

use penstock_quota::{Excess, Stray, look_every};

use super::{State, Workers, cores};
use crate::message::ToWorker;

impl Workers {
    /// Looks at the core time of the sessions whose kernels have a limit of time, if a look is due.
    /// Ends those that are over it. Only kernels on the host's cores can leave threads there.
    pub(crate) fn end_strays(&mut self, now: Instant) {
        let is_at_risk = self.devices.iter().any(|device| device.is_of_host);
        if !is_at_risk || self.stray_look.is_some_and(|at| now < at) {
            return;
        }
        let last = std::mem::replace(&mut self.strays_looked, now);
        let passed = now.saturating_duration_since(last);
        self.stray_look = None;
        let cores = u32::try_from(cores()).unwrap_or(u32::MAX);
        for (id, worker) in &mut self.table {
            let limit = self.quota.ledger.kernel_time(*id);
            let (State::Serving(_), Some(limit), Some(usage), None) =
                (&worker.state, limit, &worker.usage, worker.over_since)
            else {
                worker.stray = Stray::default();
                continue;
            };
            let next = now + look_every(limit.max);
            self.stray_look = Some(self.stray_look.map_or(next, |at| at.min(next)));
            // A worker that has ended is noticed elsewhere.
            let Ok(used) = penstock_energy::cores::of_process(*id) else { continue };
            let max = Duration::from_secs(limit.max);
            let what = match worker.stray.look(passed, used, usage.told(), (max, cores)) {
                None => continue,
                Some(Excess::Stray) => "a kernel has left threads that compute for too long",
                Some(Excess::Unseen) => "the worker does not look at its limits any more",
            };
            let why = format!("{what}: {}", limit.said);
            tracing::warn!(worker = id, "a session ends: {why}");
            worker.over_since = Some(now);
            // One that does not listen is killed in time.
            _ = worker.control.send(&ToWorker::Over(why), None);
        }
    }
}
