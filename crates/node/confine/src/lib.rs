//! What a worker may not do, although it runs the kernels of strangers.
//!
//! A worker restricts itself in two steps. [`Order::begin`] comes before its first thread and its
//! first driver, because Landlock restricts only the calling thread and the threads that it starts
//! later. [`Begun::finish`] comes after the drivers and before the first byte of a client, because
//! drivers need system calls at their start that they do not need later. It restricts all threads
//! and then looks at each of them. The [`Report`] says what was reached, and why not more.
//!
//! What is restricted is plain data: [`environment`], [`limits`], [`files`], [`permitted`] and
//! [`calls`] have no I/O. `apply`, `drivers` and [`threads`] do what the data says.
#![forbid(unsafe_code)]

mod apply;
pub mod calls;
mod drivers;
pub mod environment;
pub mod files;
mod filter;
pub mod level;
pub mod limits;
pub mod permitted;
pub mod report;
pub mod threads;

pub use apply::{Begun, Order, WorkerUser, harden, keep_descriptors};
pub use filter::{FilterError, restrict_this_thread};
pub use level::{Level, UnknownLevel};
pub use report::{Lack, Network, Report};
