//! Decides whether a peer that sends beats has been silent for too long. Has no I/O and no clock.
//!
//! A kernel says nothing of a process that was stopped, and the host of a peer may hang while its
//! network still answers. So a worker beats: it sends a sign of life at an interval, and any other
//! byte counts as well.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use penstock_process::variable;
use penstock_wire::limits::{BEAT_MS, SILENCE_S_DEFAULT};

/// Longest time between two looks that counts as silence. Nobody waited for the peer in the rest of
/// that time, or this process was stopped. A waiting thread looks once a second.
const LOOK_COUNTS_MAX: Duration = Duration::from_secs(2);

// The peer does not know the limit of this process, and beats at its own interval.
const _: () = assert!(variable::SILENCE_S_MIN * 1_000 >= 3 * BEAT_MS);

/// Returns the silence after which this process gives up a peer that sends beats, or `None` if it
/// never does.
pub(crate) fn allowed() -> Option<Duration> {
    static ALLOWED: OnceLock<Option<Duration>> = OnceLock::new();
    *ALLOWED.get_or_init(|| match variable::SILENCE_S.number() {
        Some(0) => None,
        chosen => Some(Duration::from_secs(chosen.unwrap_or(SILENCE_S_DEFAULT))),
    })
}

/// Time without a sign of life from a peer that sends beats.
#[derive(Debug)]
pub(crate) struct Silence {
    looked: Instant,
    lasts: Duration,
    max: Duration,
}

impl Silence {
    pub(crate) fn new(now: Instant, max: Duration) -> Self {
        Self { looked: now, lasts: Duration::ZERO, max }
    }

    /// Returns the silence that is allowed.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// Notes whether anything has come since the last look. Returns whether the peer has been
    /// silent for too long.
    pub(crate) fn look(&mut self, now: Instant, heard: bool) -> bool {
        let gap = now.saturating_duration_since(self.looked).min(LOOK_COUNTS_MAX);
        self.looked = now;
        self.lasts = if heard { Duration::ZERO } else { self.lasts + gap };
        self.lasts >= self.max
    }
}

#[cfg(test)]
mod tests;
