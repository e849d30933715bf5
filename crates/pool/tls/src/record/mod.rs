//! The record layer of TLS 1.3 after the handshake (RFC 8446, 5).
//!
//! A [`Sealer`] makes records from the caller's memory, and an [`Opener`] opens them, in place or
//! into the caller's memory. Both are pure: bytes in, bytes out. An [`Intake`] keeps the bytes of a
//! stream until their records are complete.
//!
//! ```text
//!   header: 23, version, length | content ... | content type | zeros ... | tag
//!   '----- authenticated -----' '------------ encrypted ---------------'
//! ```

mod format;
mod handover;
mod intake;
mod open;
mod seal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use handover::{HANDOVER_BYTES, Handover};
pub use intake::Intake;
pub use open::{Message, Opener};
pub use seal::{Pieces, Sealer};

pub(crate) use format::Direction;
pub use format::Side;

use self::format::Updates;
use crate::suite::TrafficSecret;

/// Both directions of a connection whose handshake is finished.
#[derive(Debug)]
pub struct Records {
    pub sealer: Sealer,
    pub opener: Opener,
}

impl Records {
    /// Starts the records of a connection. `side` is this side.
    pub fn new(side: Side, outgoing: TrafficSecret, incoming: TrafficSecret) -> Self {
        Self::resume(side, Direction::new(outgoing), Direction::new(incoming), false)
    }

    /// Continues the records of a connection. `owes` says whether the peer has asked for a key
    /// update that this side has not made yet.
    pub(crate) fn resume(side: Side, outgoing: Direction, incoming: Direction, owes: bool) -> Self {
        let updates = Arc::new(Updates::default());
        updates.owed.store(owes, Ordering::Relaxed);
        Self {
            sealer: Sealer::new(outgoing, updates.clone()),
            opener: Opener::new(side, incoming, updates),
        }
    }
}
