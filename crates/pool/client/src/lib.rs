//! One process's view of the pool, for every face: nodes and devices, sessions, objects, residency,
//! completion.
//!
//! This crate knows nothing of C. The faces check the arguments of programs and turn errors into
//! codes; this crate keeps the promises of the protocol. Only [`Event::wait`], [`Queue::finish`]
//! and the few calls that say so wait for a worker.
//!
//! * [`Pool`], [`Node`], [`Device`]: the hardware.
//! * [`Session`]: one link to one worker. The thread that waits receives for all threads.
//! * [`Context`]: devices, sorted into [`Place`]s. Each place is a platform of a node.
//! * [`Memory`]: buffers and images with a copy in each place that needed one, and which copies are
//!   current.
//! * [`Heap`]: memory on several devices that kernels on all of them reach.
//! * [`Queue`], [`Event`]: commands, and their completion. `order.rs` and `command.rs` ask
//!   `penstock-coherence` what to send.
//! * `config/`: the configuration of the pool, for the faces and for the command `penstock`.
//! * [`headers`]: the files that programs include, which travel with their builds.
//! * [`LibraryMemory`]: what calls of libraries use.
//! * [`summary`]: what the program did and waited for, if a person asks.
//! * [`Program`], [`Kernel`], [`Sampler`]: the objects that launches use.
#![forbid(unsafe_code)]

mod arena;
mod buffer;
mod claims;
mod collective;
mod command;
pub mod config;
mod context;
pub mod error;
mod event;
mod grant;
pub mod headers;
mod heap;
pub mod identity;
mod ids;
mod image;
mod issued;
mod kernel;
mod launch;
mod library;
mod memory;
pub mod notice;
mod order;
mod peer;
mod pool;
mod program;
mod progress;
mod queue;
mod resident;
mod select;
mod session;
mod source;
pub mod summary;
mod survey;
mod sync;
mod transfer;
mod uses;

pub use claims::Claims;
pub use collective::HeapLaunch;
pub use context::{Context, Place};
pub use error::Error;
pub use event::{Event, Times};
pub use grant::{Grant, Stranger};
pub use heap::{HEADER, Heap, HeapOptions};
pub use kernel::{ArgValue, Kernel, Sampler};
pub use library::{LibraryMemory, LibraryOperand};
pub use memory::{ImageShape, Memory, MemoryKind};
pub use order::{may_be_read, may_be_written, set_user_event, user_event};
pub use penstock_coherence::HostShape;
pub use penstock_link::spawn_quiet;
pub use penstock_wire::IndexSpace;
#[cfg(feature = "world")]
pub use pool::LinkedNode;
pub use pool::{Device, Node, Pool};
pub use program::{Input, KernelInfo, Program};
pub use progress::send_later;
pub use queue::{Access, Queue, Range, Rect, Want};
pub use select::select_described;
pub use session::{Pending, Session, Target};
pub use source::{Given, Source};
pub use survey::{Surveyed, open_link, survey};
