//! Enforcement of the limits that are not simply a table's size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use penstock_device::Staged;
use penstock_wire::{FrameError, Status, limits};

use super::Shared;
use super::event::lock;

/// Builds of one session at the same time. Each is a thread that may take 500 MB in a compiler; a program that builds more
/// at once gets them one after the other from its driver anyway.
const BUILDS_MAX: usize = 64;

/// How often a thread that waits for room looks again. At the limit 1 GiB is on its way: a tenth of a second.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// Builds under way.
#[derive(Default)]
pub(crate) struct Builds(Arc<AtomicUsize>);

/// A build's place; free again when dropped.
#[derive(Debug)]
pub(crate) struct Build(Arc<AtomicUsize>);

impl Builds {
    /// A place for one more build.
    pub(crate) fn begin(&self) -> Result<Build, Status> {
        if self.0.fetch_add(1, Ordering::AcqRel) >= BUILDS_MAX {
            self.0.fetch_sub(1, Ordering::AcqRel);
            return Err(Status::OUT_OF_RESOURCES);
        }
        Ok(Build(self.0.clone()))
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Waits until [`limits::STAGED_BYTES_MAX`] has room for so many bytes more: until commands have completed, or the
    /// client has taken what it asked for.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> Result<(), FrameError> {
        self.wait_while(|| {
            let held = Staged::held();
            if held == 0 || held.saturating_add(bytes) <= limits::STAGED_BYTES_MAX {
                return false;
            }
            // Not counting transfers whose target is not ready: what makes it so may be a call that is still to be read.
            let held = held.saturating_sub(self.transfers.waiting_bytes());
            // One larger than the limit alone is let through when nothing else is staged.
            held > 0 && held.saturating_add(bytes) > limits::STAGED_BYTES_MAX
        })
    }

    /// As [`Shared::wait_for_room`], for content of a transfer that may have to wait for its target: those have the same limit
    /// again for themselves.
    pub(crate) fn wait_for_transfer_room(&self, bytes: u64) -> Result<(), FrameError> {
        self.wait_while(|| {
            let waiting = self.transfers.waiting_bytes();
            waiting > 0 && waiting.saturating_add(bytes) > limits::STAGED_BYTES_MAX
        })
    }

    fn wait_while(&self, is_full: impl Fn() -> bool) -> Result<(), FrameError> {
        while is_full() {
            if self.has_ended() {
                return Err(FrameError::Broken);
            }
            for queue in lock(&self.queues).values() {
                // What holds the bytes must have been given to its device. A queue that can not be flushed says so itself.
                _ = queue.flush();
                queue.reclaim();
            }
            thread::sleep(ROOM_LOOK);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_are_bounded() {
        let builds = Builds::default();
        let all: Vec<_> = (0..BUILDS_MAX).map(|_| builds.begin().expect("under the limit")).collect();
        assert!(builds.begin().is_err());
        drop(all);
        assert!(builds.begin().is_ok());
    }
}
