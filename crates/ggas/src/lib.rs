//! Symmetric heaps for device communication. Each device (a *PE*) has a part of equal size. Kernels
//! store into each other's parts, signal, wait and meet at barriers, without the host.
//!
//! * [`Heap`] is the side of one process (a *member*), which holds one or several PEs. Connected
//!   streams join the members.
//! * A PE's [`View`] is the one argument of its kernels: its head, then all parts that it can store
//!   into.
//! * Parts of members on one host are mapped into all their views. A *proxy* reaches the others:
//!   kernels write entries into a ring, a thread of the member sends the bytes, and the member at
//!   the other end puts them directly into the part.
//! * When a member ends, all waits of the other members' kernels end with `GGAS_ABORTED`.
//!
//! [`HEADER`] is the header for kernels, [`with_header`] inserts it into their sources, and
//! [`check_resident`] says whether all kernels can run at the same time.
//!
//! Kernels and members are assumed hostile: what they write into rings or send can end only their
//! own heap. Within their parts, kernels may do anything.

mod error;
pub mod frame;
mod header;
mod heap;
pub mod hello;
mod join;
pub mod layout;
pub mod life;
mod monitor;
mod plan;
pub mod proxy;
mod resident;
mod segment;
mod state;
#[cfg(feature = "ucx")]
pub mod ucx;
mod wake;

pub use error::{HeapError, Refusal};
pub use header::{HEADER, with_header};
pub use heap::{Heap, Path, Running, View};
pub use join::Over;
pub use plan::{Plan, TIMEOUT_DEFAULT, TIMEOUT_MAX};
pub use resident::{NotResident, Seat, check_resident, resident_groups};
