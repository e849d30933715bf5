//! Whether the worker lives, where nothing that it sends would tell: who only uses shared memory, or only polls, sees no hang-up.

use std::sync::atomic::Ordering;

use penstock_link::LinkError;

use super::Session;

/// How often somebody who only uses shared memory asks whether the worker still lives: a dead one is noticed well
/// within a second, and the question costs 0.3 µs.
pub(super) const LOOK_EVERY_MS: u64 = 100;

impl Session {
    /// Whether this process may use the memory that it shares with the worker: a forked child may not, and what a dead
    /// worker has left is not the device's.
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

    /// Whether the worker lives, as far as it was seen lately, without taking what it has sent.
    pub(super) fn look(&self) -> Result<(), LinkError> {
        let now_ms = u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        if now_ms < self.look_at_ms.load(Ordering::Relaxed) {
            return self.sender.check();
        }
        self.look_at_ms.store(now_ms.saturating_add(LOOK_EVERY_MS), Ordering::Relaxed);
        self.sender.check_peer()
    }
}
