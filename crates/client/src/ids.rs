//! Numbers of objects.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_wire::Id;

/// The next number for an object; see [`Id`].
pub(crate) fn next_id<K>() -> Id<K> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Id::new(NEXT.fetch_add(1, Ordering::Relaxed))
}
