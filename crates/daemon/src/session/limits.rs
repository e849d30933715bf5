//! Enforcement of the limits that are not simply a table's size.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use penstock_device::Staged;
use penstock_wire::{FrameError, limits};

use super::Shared;
use super::event::lock;

/// How often a thread that waits for room looks again. At the limit 1 GiB is on its way: a tenth of a second.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// At the limit, after so long without a byte freed, it is asked whether that depends on the client. Devices that work free
/// some of 1 GiB within a tenth of a second.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// At [`limits::GATED_BYTES_MAX`], after so long without a byte freed, the session ends. A kernel may run as long while a user
/// event is open that has nothing to do with it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

impl Shared {
    /// Waits until [`limits::STAGED_BYTES_MAX`] has room for so many bytes more: until commands have completed, or the
    /// client has taken what it asked for.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> Result<(), FrameError> {
        let is_full = |max: u64| {
            let held = Staged::held();
            if held == 0 || held.saturating_add(bytes) <= max {
                return false;
            }
            // Not counting transfers whose target is not ready: what makes it so may be a call that is still to be read.
            let held = held.saturating_sub(self.transfers.waiting_bytes());
            // One larger than the limit alone is let through when nothing else is staged.
            held > 0 && held.saturating_add(bytes) > max
        };
        let (mut least, mut since) = (Staged::held(), Instant::now());
        while is_full(limits::STAGED_BYTES_MAX) {
            let held = Staged::held();
            if held < least {
                (least, since) = (held, Instant::now());
                self.gated.store(false, Ordering::Relaxed);
            }
            let was_gated = self.gated.load(Ordering::Relaxed);
            if was_gated || (since.elapsed() > STUCK_AFTER && self.events.awaits_client()) {
                // What the client tells may be behind these very bytes.
                self.gated.store(true, Ordering::Relaxed);
                if !is_full(limits::GATED_BYTES_MAX) {
                    return Ok(());
                }
                if since.elapsed() > GIVE_UP_AFTER {
                    return Err(FrameError::Limit("GATED_BYTES_MAX"));
                }
            }
            self.make_room()?;
        }
        Ok(())
    }

    /// As [`Shared::wait_for_room`], for content of a transfer that may have to wait for its target: those have the same limit
    /// again for themselves.
    pub(crate) fn wait_for_transfer_room(&self, bytes: u64) -> Result<(), FrameError> {
        let is_full = || {
            let waiting = self.transfers.waiting_bytes();
            waiting > 0 && waiting.saturating_add(bytes) > limits::STAGED_BYTES_MAX
        };
        while is_full() {
            self.make_room()?;
        }
        Ok(())
    }

    /// Has the devices work on what holds the bytes, for a moment.
    fn make_room(&self) -> Result<(), FrameError> {
        if self.has_ended() {
            return Err(FrameError::Broken);
        }
        // Not under the lock: a flush may run commands, whose ends may ask for it.
        let queues: Vec<_> = lock(&self.queues).values().cloned().collect();
        for queue in queues {
            // A queue that can not be flushed says so itself.
            _ = queue.flush();
            queue.reclaim();
        }
        thread::sleep(ROOM_LOOK);
        Ok(())
    }
}
