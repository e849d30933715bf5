//! How many bytes the links of this process have moved. To seal, open and copy them takes core
//! time, also of threads that belong to drivers. A worker explains its core time by that.

use std::sync::atomic::{AtomicU64, Ordering};

static MOVED: AtomicU64 = AtomicU64::new(0);

/// Notes bytes that were sent or received. Callers move many bytes at a time.
pub(crate) fn note(bytes: usize) {
    MOVED.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Returns the number of bytes that all links of this process have sent and received.
pub fn moved_bytes() -> u64 {
    MOVED.load(Ordering::Relaxed)
}
