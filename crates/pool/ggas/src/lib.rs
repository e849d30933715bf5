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
//!
//! Each layer uses only those above it in this table:
//!
//! | files | layer |
//! |---|---|
//! | `layout.rs`, `plan.rs`, `error.rs`, `header.rs`, `resident.rs` | plain data and checks |
//! | `bytes.rs`, `frame.rs`, `hello.rs` | the bytes that members send to each other |
//! | `lifecycle.rs`, `abort.rs` | decisions without locks or memory: which step may follow which |
//! | `segment.rs`, `bell.rs`, `settle.rs`, `state.rs` | the memory and the state of a member |
//! | `proxy/`, `ucx/`, `watcher.rs` | the threads of a member, and what carries their bytes |
//! | `connection.rs`, `ucx_offer.rs`, `handshake.rs` | how two members connect |
//! | `heap.rs` | one member's side of a heap |
//! | `host/` | a process that holds members of several heaps for somebody else |

pub mod abort;
mod bell;
mod bytes;
mod connection;
mod error;
pub mod frame;
mod handshake;
mod header;
mod heap;
pub mod hello;
pub mod host;
pub mod layout;
pub mod lifecycle;
mod plan;
pub mod proxy;
mod resident;
mod segment;
mod settle;
mod state;
#[cfg(feature = "ucx")]
pub mod ucx;
mod ucx_offer;
mod watcher;

pub use connection::ProxyTransport;
pub use error::{HeapError, Refusal};
pub use header::{HEADER, with_header};
pub use heap::{Heap, Path, PePaths, Running, UserBytes, View};
pub use plan::{Plan, TIMEOUT_DEFAULT, TIMEOUT_MAX};
pub use resident::{LaunchDevice, NotResident, check_resident, resident_groups};
