//! penstockd: the daemon of a node, and the worker that serves one client.
//!
//! * [`serve`] is the daemon: it accepts and identifies clients and hands each to a spare worker.
//! * [`worker_main`] is a worker: one process per client, the only one that uses drivers.
//! * [`session`] has the worker's handlers, one for each call of the protocol.
#![deny(unsafe_code)]

mod account;
mod daemon;
mod door;
mod line;
pub mod log;
mod message;
pub mod node;
mod refill;
pub mod session;
mod status;
mod sys;
mod transport;
mod usage;
mod worker;
mod workers;

pub use daemon::{Error, Options, serve, serve_until};
pub use log::Log;
pub use transport::UnknownTransport;
pub use worker::worker_main;
