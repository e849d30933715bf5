//! Finds the daemons of the local network, and announces a daemon there, by multicast DNS
//! (RFC 6762) and DNS-based service discovery (RFC 6763).
//!
//! * [`announce`] tells the network about a daemon until the [`Announced`] is dropped.
//! * [`search`] returns the daemons that answer. `answer.rs` says what an answer means, and
//!   `patience.rs` when a search is over.
//!
//! What this crate returns is what somebody on the network says, and anybody can say anything
//! there. A [`Found`] is therefore only a place to knock at. Who really listens is decided by the
//! hello of crate `link`, in which both sides prove the pool's key.
//!
//! This is the mapper of clOpenCL (Alves and others, 2013), which found the nodes of a cluster by
//! Open-MX's map of the network.
#![forbid(unsafe_code)]

mod announce;
mod answer;
mod patience;
mod search;

pub use announce::{Announced, Announcement, announce};
pub use answer::{FOUND_MAX, Found, NAME_BYTES_MAX};
pub use patience::{QUIET, SEARCH_MAX};
pub use search::search;

/// The kind of service, as RFC 6763 names one: the registered name of the program, and the
/// protocol.
const SERVICE: &str = "_penstock._tcp.local.";

/// Keys in the text record of an announcement.
const PROTOCOL_KEY: &str = "protocol";
const FINGERPRINT_KEY: &str = "key";

/// The local network cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("multicast DNS does not work here: {why}")]
pub struct DiscoverError {
    why: String,
}

impl DiscoverError {
    fn new(why: impl ToString) -> Self {
        Self { why: why.to_string() }
    }
}
