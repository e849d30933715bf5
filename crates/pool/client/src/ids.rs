//! Ids of objects.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_wire::Id;

/// Returns a new id, see [`Id`].
pub(crate) fn next_id<K>() -> Id<K> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Id::new(NEXT.fetch_add(1, Ordering::Relaxed))
}
