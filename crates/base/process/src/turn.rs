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

/// Returns the work of a thread that is about to start. Every thread that may take a lock of an
/// open session gets its work from here. The threads that open sessions do not, nor does the bridge
/// over SSH, which is a process of its own.
#[inline]
pub fn member<T, W: FnOnce() -> T + Send>(work: W) -> W {
    work
}
