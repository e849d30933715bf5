//! Launches whose kernels have a limit of time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_RUNNING;
use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

/// The launches whose ends are not known, in the order in which they were given to the devices.
#[derive(Default)]
pub(crate) struct Launches(Lock<VecDeque<Launch>>);

struct Launch {
    event: device::Event,
    /// When the driver was first seen to run it.
    since: Option<Instant>,
}

impl Launches {
    /// Watches a launch from now on.
    pub(crate) fn watch(&self, event: device::Event) {
        self.0.lock().push_back(Launch { event, since: None });
    }

    /// Looks at all launches. Returns the time for which the oldest of them has been seen to run.
    pub(crate) fn longest(&self, now: Instant) -> Option<Duration> {
        // Drivers are asked without the lock, so that no launch waits.
        let mut launches = std::mem::take(&mut *self.0.lock());
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
        let mut now_watched = self.0.lock();
        launches.append(&mut now_watched);
        *now_watched = launches;
        longest
    }
}

impl std::fmt::Debug for Launches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launches").finish_non_exhaustive()
    }
}
