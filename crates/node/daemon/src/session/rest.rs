//! Whether the devices of a session have anything to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_device::Want;

use super::shared_session::SharedSession;

/// The markers that ask queues whether their commands have ended.
#[derive(Debug, Default)]
pub(super) struct Probes(Arc<AtomicUsize>);

impl SharedSession {
    /// Puts a marker into each queue. [`SharedSession::is_at_rest`] is true when all have ended.
    pub(super) fn probe_queues(&self) {
        // Does not hold the lock during the calls: see `make_room`.
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        for queue in queues.iter().filter(|queue| !queue.is_on_device()) {
            let Ok(Some(marker)) = queue.marker(&[], Want::Event) else { continue };
            let open = self.probes.0.clone();
            open.fetch_add(1, Ordering::Relaxed);
            marker.on_complete(Box::new(move |_, _| {
                open.fetch_sub(1, Ordering::Release);
            }));
            // A queue that cannot be flushed reports that itself.
            _ = queue.flush();
        }
    }

    /// Returns whether all commands before the last probe have ended, and no build runs.
    pub(super) fn is_at_rest(&self) -> bool {
        self.probes.0.load(Ordering::Acquire) == 0 && self.builds.are_idle()
    }
}
