//! Hosting of heaps: a process that holds a member of each of several heaps for somebody else.
//!
//! A worker of the pool hosts heaps for a client, which forms each heap call by call. A rank of
//! libWater hosts heaps for its program and forms each heap in one go. Both use [`HeapHost`], and
//! each describes by a [`HeapSite`] what it does in its own way.
//!
//! | file | contains |
//! |---|---|
//! | `error.rs` | why a host refuses |
//! | `count.rs` | numbers of heaps and threads, with their limits |
//! | `site.rs` | what the hosts do differently |
//! | `table.rs` | the heaps of a host, and the threads in which they start, are reset and end |
//! | `door.rs`, `meeting.rs` | members that connect to each other without a daemon |

mod count;
mod door;
mod error;
mod meeting;
mod site;
mod table;

pub use error::HostError;
pub use meeting::{
    MEETING_MAX, Meeting, MeetingError, MeetingMessage, MeetingPlan, SECRET_BYTES, secret,
};
pub use site::{HeapSite, Join};
pub use table::{FormedHeap, HeapHost, HostLimits, HostedHeap, Release};
