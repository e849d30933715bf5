//! The symmetric heaps of a session.

use std::sync::Arc;

use penstock_device as device;
use penstock_ggas::host::{HeapHost, HostLimits};
use penstock_wire::Id;
use penstock_wire::id::kind;
use penstock_wire::limits::{HEAP_PES_MAX, HEAPS_PER_SESSION_MAX};

/// Limits of a session. All other members of a heap may come at the same time.
const LIMITS: HostLimits = HostLimits { heaps: HEAPS_PER_SESSION_MAX, threads: 2 * HEAP_PES_MAX };

/// The heaps of a session. Each counts its memory as the session's, as long as a driver has it.
pub(super) type Heaps = HeapHost<Id<kind::Heap>, Arc<device::Share>>;

pub(super) fn heaps() -> Heaps {
    HeapHost::new(LIMITS)
}
