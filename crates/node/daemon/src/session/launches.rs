//! Launches whose kernels have a limit of time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_RUNNING;
use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

/// Fewest launches after which those that have ended are removed. Looks at limits of time may be
/// ten seconds apart, and a program makes a million launches in this time.
const REMOVAL_MIN: usize = 4096;

/// The launches whose ends are not known.
pub(crate) struct Launches<E = device::Event> {
    watched: Lock<VecDeque<Launch<E>>>,
    /// Number of launches at which those that have ended are removed next: twice the number that
    /// was left the last time. So a launch pays for asking about two others.
    remove_at: AtomicUsize,
}

struct Launch<E> {
    event: E,
    /// When the driver was first seen to run it.
    since: Option<Instant>,
}

/// Something with the status of a command.
pub(crate) trait HasStatus {
    fn status(&self) -> Status;
}

impl HasStatus for device::Event {
    fn status(&self) -> Status {
        device::Event::status(self)
    }
}

impl<E> Default for Launches<E> {
    fn default() -> Self {
        Self { watched: Lock::default(), remove_at: AtomicUsize::new(REMOVAL_MIN) }
    }
}

impl<E: HasStatus> Launches<E> {
    /// Watches a launch from now on.
    pub(crate) fn watch(&self, event: E) {
        let count = {
            let mut watched = self.watched.lock();
            watched.push_back(Launch { event, since: None });
            watched.len()
        };
        if count >= self.remove_at.load(Ordering::Relaxed) {
            self.longest(Instant::now());
            let left = self.watched.lock().len();
            self.remove_at.store((2 * left).max(REMOVAL_MIN), Ordering::Relaxed);
        }
    }

    /// Looks at all launches, and removes those that have ended. Returns the time for which the
    /// oldest of them has been seen to run.
    pub(crate) fn longest(&self, now: Instant) -> Option<Duration> {
        // Drivers are asked without the lock, so that no launch waits.
        let mut launches = std::mem::take(&mut *self.watched.lock());
        let mut longest = None;
        launches.retain_mut(|launch| {
            let status = launch.event.status();
            if status == Status(CL_RUNNING) {
                let since = *launch.since.get_or_insert(now);
                longest = longest.max(Some(now.saturating_duration_since(since)));
            }
            // Positive until the end.
            status.0 > 0
        });
        let mut now_watched = self.watched.lock();
        launches.append(&mut now_watched);
        *now_watched = launches;
        longest
    }
}

impl<E> std::fmt::Debug for Launches<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launches").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use penstock_cl_sys::CL_QUEUED;

    use super::*;

    impl HasStatus for Status {
        fn status(&self) -> Status {
            *self
        }
    }

    #[test]
    fn launches_that_have_ended_do_not_stay() {
        let launches = Launches::default();
        for _ in 0..100 {
            launches.watch(Status(CL_RUNNING));
        }
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status::OK);
            assert!(launches.watched.lock().len() <= REMOVAL_MIN);
        }
        let start = Instant::now();
        launches.longest(start);
        assert_eq!(launches.watched.lock().len(), 100);
        let later = start + Duration::from_secs(5);
        assert!(launches.longest(later).is_some_and(|longest| longest >= Duration::from_secs(5)));
    }

    #[test]
    fn many_launches_that_wait_are_asked_rarely() {
        let launches = Launches::default();
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status(CL_QUEUED));
        }
        assert_eq!(launches.watched.lock().len(), 10 * REMOVAL_MIN);
        assert!(launches.remove_at.load(Ordering::Relaxed) > 10 * REMOVAL_MIN);
        assert_eq!(launches.longest(Instant::now()), None);
    }
}
