//! Symmetric heaps for device communication: each device that takes part (a *PE*) has a part of equal size, and kernels store
//! into each other's parts, signal, wait and meet at barriers without going back to the host.
//!
//! * [`Heap`] is one process's side (a *member*, which holds one PE or several). Members are joined by connected streams.
//! * A PE's [`View`] is what its kernels get as their one argument: its head, then all parts that it can store into.
//! * Parts of members on one host are mapped into all their views. Others are reached by a *proxy*: kernels write entries into a
//!   ring, a thread of the member sends the bytes, and the member at the other end puts them straight into the part.
//! * When a member ends, all waits of all others' kernels end with `GGAS_ABORTED`.
//!
//! [`HEADER`] is the header that kernels include, [`with_header`] puts it into their sources, and [`check_resident`] says whether they can
//! all run at the same time.
//!
//! Kernels, and members, are taken for hostile: whatever one writes into its ring, or sends, ends its own heap at most. What kernels
//! do within the parts that they were given is their program's business.

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
