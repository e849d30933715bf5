//! What a thread asks of time and of the other threads of the process. Builds with the feature
//! `world` have `world::turn` in place of this module.

use std::time::{Duration, Instant};

/// Returns the present time.
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps for `time`.
#[inline]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Returns the work of a thread that is about to start.
#[inline]
pub(crate) fn member<T, W: FnOnce() -> T + Send>(work: W) -> W {
    work
}
