//! Processes that build programs before the worker does, so that a compiler that crashes, does not
//! end or takes all memory costs one build and not the session.
//!
//! ```text
//! daemon ----starts----> fork server ----fork----> foreman ----fork----> builder
//!                                       start, end /                       /
//!                                  worker --------'---- task, status -----'
//! ```
//!
//! * `rehearsal` and `builders` run in the worker. They send a build that this worker has not seen
//!   yet to a builder, and wait for its end, but no longer than the limit.
//! * `foremen` lets a worker ask the daemon for a foreman when it needs the first builder.
//! * `fork_server` is a process of the daemon that has read PoCL's library, and has nothing of any
//!   client. Each foreman is a copy of it.
//! * `foreman` starts the builders of one worker, ends them, and says how they ended.
//! * `process` is a builder: it confines itself as a worker, loads the drivers, and builds.
//! * `task`, `known`, `limits` and `failure` have the plain data and the decisions.

mod builders;
mod failure;
mod foreman;
mod foremen;
mod fork_server;
mod known;
mod limits;
mod process;
mod rehearsal;
mod task;

pub(crate) use builders::Builders;
pub(crate) use foremen::Foremen;
pub(crate) use fork_server::{FromForkServer, Request, ToForkServer, serve_forks};
pub(crate) use limits::{BUILD_STACK_BYTES, BUILDS_AT_ONCE_MAX, BuildLimits};
pub(crate) use rehearsal::{Rehearsal, Rehearsals};
pub(crate) use task::{Goal, Making, Origin};
