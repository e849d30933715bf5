//! Core time of workers that no work for their clients explains: see `penstock_quota::Stray`.

use std::time::{Duration, Instant};

use penstock_quota::{Excess, Stray, Told, look_every};

use super::{State, Workers, cores};
use crate::message::ToWorker;

/// What the daemon knows of the stray core time of one worker.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stray: Stray,
    looked: Option<Instant>,
    /// The limit in seconds.
    max: u64,
}

impl Watch {
    /// Looks at a worker that has taken the core time `used` on a host with so many cores. What was
    /// before a change of the limit does not count: the worker has looked as often as the limit of
    /// that time needed.
    fn look(
        &mut self,
        now: Instant,
        (used, told): (Duration, Told),
        (max, cores): (u64, u32),
    ) -> Option<Excess> {
        if self.max != max {
            *self = Self { max, ..Self::default() };
        }
        let last = self.looked.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(last);
        self.stray.look(passed, used, told, (Duration::from_secs(max), cores))
    }
}

impl Workers {
    /// Looks at the core time of the sessions whose kernels have a limit of time, if a look is due.
    /// Ends those that are over it. Only kernels on the host's cores can leave threads there.
    pub(crate) fn end_strays(&mut self, now: Instant) {
        let is_at_risk = self.devices.iter().any(|device| device.is_of_host);
        if !is_at_risk || self.stray_look.is_some_and(|at| now < at) {
            return;
        }
        self.stray_look = None;
        let cores = u32::try_from(cores()).unwrap_or(u32::MAX);
        for (id, worker) in &mut self.table {
            let limit = self.quota.ledger.kernel_time(*id);
            let (State::Serving(_), Some(limit), Some(usage), None) =
                (&worker.state, limit, &worker.usage, worker.over_since)
            else {
                worker.watch = Watch::default();
                continue;
            };
            let next = now + look_every(limit.max);
            self.stray_look = Some(self.stray_look.map_or(next, |at| at.min(next)));
            // A worker that has ended is noticed elsewhere.
            let Ok(used) = penstock_energy::cores::of_process(*id) else { continue };
            let what = match worker.watch.look(now, (used, usage.told()), (limit.max, cores)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_changes_judges_only_what_follows() {
        let (mut watch, mut now) = (Watch::default(), Instant::now());
        let seconds = Duration::from_secs;
        let mut look = |used, looked, stray, max| {
            now += seconds(10);
            let told = Told { looked: seconds(looked), stray: seconds(stray) };
            watch.look(now, (seconds(used), told), (max, 2))
        };
        assert_eq!(look(100, 100, 0, 80), None);
        // The worker has looked in time for the limit of 80 s, and not for that of 2 s.
        assert_eq!(look(120, 100, 70, 80), None);
        assert_eq!(look(120, 100, 70, 2), None);
        assert_eq!(look(124, 100, 70, 2), None);
        assert_eq!(look(125, 100, 70, 2), Some(Excess::Unseen));
        assert_eq!(look(125, 125, 73, 2), Some(Excess::Stray));
        assert_eq!(look(400, 125, 73, 3), None);
    }
}
