//! penstockd: the daemon of a node, and the worker that serves one client.
//!
//! * [`serve`] is the daemon: it accepts and identifies clients and hands each to a spare worker.
//! * [`worker_main`] is a worker: one process per client, the only one that uses drivers.
//! * [`session`] has the worker's handlers, one for each call of the protocol.
//!
//! # Layers
//!
//! A file uses only files of its own layer and of the layers below it:
//!
//! 1. The processes: `daemon`, `door`, `desk`, `dial` and `status` are the daemon, `worker` and
//!    `outgoing` are a worker, and `workers` is the daemon's list of its workers. `builder/` has
//!    the processes of compilers, and `fork_server` the daemon's side of them.
//! 2. The calls: `session/call/` has the handlers of the client's calls, with one file for each
//!    kind of object.
//! 3. The session: `session/mod.rs` has its tables of objects, and the loop that reads its link.
//! 4. What several handlers need, in `session/`: `ends` reports the ends of commands, `limits`
//!    waits for room, and `shared` lends memory to drivers.
//! 5. What all threads of a session use: `session/shared_session.rs`.
//! 6. The objects, in `session/`: `event`, `queue`, `program`, `svm`, `transfer`, `peer`, `heap`,
//!    `heap_view`, `output` and `builds`.
//! 7. Plain data and decisions: `table`, `pieces`, `end_order`, `send_gate`, `allowance`,
//!    `flights`, `launches`, `compiles` and `turns` in `session/`; outside it `doorstep`,
//!    `admission`, `dials`, `permitted`, `invitations`, `line`, `links`, `refill`, `idle`, `quota`,
//!    `sharing`, `groups` (control groups of workers), `users` (their Unix users), `asks`,
//!    `account`, `totals`, `refusals`, `message`, `launch`, `folders` (those of workers),
//!    `confinement`, `node`, `pocl`, `usage`, `transport`, `log` and `sys`.
#![deny(unsafe_code)]

mod account;
mod administration;
mod admission;
mod announce;
mod answers;
mod asker;
mod asks;
mod builder;
mod client_list;
mod confinement;
mod crash;
mod daemon;
mod desk;
mod dial;
mod dials;
mod door;
mod doorstep;
mod folders;
mod fork_server;
mod groups;
mod guest;
mod idle;
mod invitations;
mod launch;
mod line;
mod links;
pub mod log;
mod message;
pub mod node;
mod options;
mod outgoing;
mod permitted;
mod pocl;
mod quota;
mod refill;
mod refusals;
mod said;
pub mod session;
mod sharing;
mod status;
mod sys;
mod totals;
mod transport;
mod usage;
mod users;
mod whose;
mod worker;
mod workers;

pub use announce::AnnounceError;
pub use confinement::ConfinementError;
pub use daemon::{serve, serve_until};
pub use guest::{Guest, GuestError, read_guest_memory};
pub use idle::{IdleEnd, open_lock};
pub use log::Log;
pub use options::{Error, Options};
pub use penstock_confine::{Level, UnknownLevel};
pub use permitted::WrongNetwork;
pub use quota::LimitsError;
pub use transport::UnknownTransport;
pub use users::{NotARange, UserRange, UsersError, WORKER_USERS_MIN};
pub use worker::worker_main;
