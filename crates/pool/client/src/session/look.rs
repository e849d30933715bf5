//! Checks that the worker lives. A thread that only uses shared memory, or only polls, would not
//! see a hang-up.

use std::sync::atomic::Ordering;

use penstock_link::LinkError;

use super::Session;

/// Interval in ms at which a thread that only uses shared memory asks whether the worker lives. A
/// dead worker is noticed well within a second, and the question costs 0.3 µs.
pub(super) const LOOK_EVERY_MS: u64 = 100;

impl Session {
    /// Returns whether this process may use the memory that it shares with the worker. A forked
    /// child may not, and the memory that a dead worker has left no longer belongs to a device.
    pub(crate) fn is_usable(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        match self.look() {
            Ok(()) => true,
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    /// Checks whether the worker lives, without receiving. Asks the system only if the last look is
    /// older than [`LOOK_EVERY_MS`].
    pub(super) fn look(&self) -> Result<(), LinkError> {
        let now_ms =
            u64::try_from(penstock_process::since(self.opened_at).as_millis()).unwrap_or(u64::MAX);
        if now_ms < self.look_at_ms.load(Ordering::Relaxed) {
            return self.sender.check();
        }
        self.look_at_ms.store(now_ms.saturating_add(LOOK_EVERY_MS), Ordering::Relaxed);
        self.sender.check_peer()
    }
}
