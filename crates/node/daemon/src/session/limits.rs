//! Enforcement of the limits that are not simply a table's size.

use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_device::Staged;
use penstock_wire::{FrameError, limits};

use super::shared_session::SharedSession;

/// Interval at which a thread that waits for room looks. At the limit 1 GiB is on its way, for 0.1
/// s.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// Time at the limit without a freed byte after which the wait may depend on the client. Devices
/// that work free some of 1 GiB within a tenth of a second.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Time at [`limits::GATED_BYTES_MAX`] without a freed byte after which the session ends. A kernel
/// may run that long while an unrelated user event is open.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

impl SharedSession {
    /// Blocks until [`limits::STAGED_BYTES_MAX`] has room for `bytes` more: until commands have
    /// ended, or the client has taken what it asked for.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> Result<(), FrameError> {
        let is_full = |max: u64| {
            let held = Staged::held();
            if held == 0 || held.saturating_add(bytes) <= max {
                return false;
            }
            // Transfers whose target is not ready do not count: a later call may make it ready.
            let held = held.saturating_sub(self.transfers.waiting_bytes());
            // A single larger one passes if nothing else is staged.
            held > 0 && held.saturating_add(bytes) > max
        };
        let (mut least, mut since) = (Staged::held(), penstock_process::now());
        let cap = self.allowance.terms().bytes_in_flight;
        while is_full(self.allowance.bytes_max()) {
            let held = Staged::held();
            if held < least {
                (least, since) = (held, penstock_process::now());
                self.gated.store(false, Ordering::Relaxed);
            }
            let was_gated = self.gated.load(Ordering::Relaxed);
            if was_gated
                || (penstock_process::since(since) > STUCK_AFTER && self.events.awaits_client())
            {
                // The client's message may be behind these very bytes.
                self.gated.store(true, Ordering::Relaxed);
                // A limit that somebody set does not grow.
                if cap.is_none() && !is_full(limits::GATED_BYTES_MAX) {
                    return Ok(());
                }
                if penstock_process::since(since) > GIVE_UP_AFTER {
                    let built_in = || FrameError::Limit("GATED_BYTES_MAX");
                    return Err(cap.map_or_else(built_in, |cap| FrameError::Quota(cap.said)));
                }
            }
            self.make_room()?;
        }
        Ok(())
    }

    /// Does the same as [`SharedSession::wait_for_room`] for content of a transfer that may wait
    /// for its target. Such content has a limit of the same size of its own.
    pub(crate) fn wait_for_transfer_room(&self, bytes: u64) -> Result<(), FrameError> {
        let is_full = || {
            let waiting = self.transfers.waiting_bytes();
            waiting > 0 && waiting.saturating_add(bytes) > self.allowance.bytes_max()
        };
        while is_full() {
            self.make_room()?;
        }
        Ok(())
    }

    /// Lets the devices work on pending commands for a moment, and frees staged bytes.
    pub(super) fn make_room(&self) -> Result<(), FrameError> {
        if self.has_ended() {
            return Err(FrameError::Broken);
        }
        // Does not hold the lock of the queues during a flush. A flush may run commands whose ends
        // need that lock.
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        for queue in queues {
            // A queue that cannot be flushed reports that itself.
            _ = queue.flush();
            queue.reclaim();
        }
        penstock_process::sleep(ROOM_LOOK);
        Ok(())
    }
}
