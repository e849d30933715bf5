//! Processes that build programs before the worker does, so that a compiler that crashes, does not
//! end or takes all memory costs one build and not the session.
//!
//! ```text
//! worker ----starts, ends----> foreman ----fork----> builder
//!    \_______________________ task, status ____________/
//! ```
//!
//! * `rehearsal` and `builders` run in the worker. They send a build that this worker has not seen
//!   yet to a builder, and wait for its end, but no longer than the limit.
//! * `foreman` is a copy of the worker that is made before the worker has a key, a driver or a
//!   thread. It starts builders, ends them, and says how they ended.
//! * `process` is a builder: it confines itself as a worker, loads the drivers, and builds.
//! * `task`, `known`, `limits` and `failure` have the plain data and the decisions.

mod builders;
mod failure;
mod foreman;
mod known;
mod limits;
mod process;
mod rehearsal;
mod task;

pub(crate) use builders::Builders;
pub(crate) use foreman::engage;
pub(crate) use limits::{BUILD_STACK_BYTES, BUILDS_AT_ONCE_MAX, BuildLimits};
pub(crate) use rehearsal::{Rehearsal, Rehearsals};
pub(crate) use task::{Goal, Making, Origin};
