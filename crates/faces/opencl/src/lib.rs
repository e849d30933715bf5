//! The OpenCL face of the pool: `libpenstock_opencl.so`, a driver for the ICD loader (1.0 and 2.0).
//!
//! * [`edge`]: all that is particular to a C interface: entry points, handles, arrays, queries.
//! * [`api`]: OpenCL's functions. Each checks its arguments against the specification's list of
//!   errors.
//! * `core`: the objects behind the handles, which never see a program's raw pointers. The file
//!   names are those of [`api`].
//!
//! The files of `core` have layers. A file imports only files of its own row or of rows below, and
//! in a row only two files import each other:
//!
//! | layer | files |
//! |---|---|
//! | what the calls do | `build`, `map`, `pool` (opens the pool as platforms), `svm` |
//! | objects that hold other objects | `event`, `kernel`, `memory`, `program`, `sampler` |
//! | the context and its queues | `context`, `queue` |
//! | the platform and its devices | `device`, `platform` |
//! | data that objects hold | `area`, `arg`, `image`, `mapping`, `shadow`, `target` |
//! | decisions | `extensions`, `format`, `ndrange`, `rect` |
//!
//! [`api::table`] lists all functions; docs/opencl.md is generated from it.

pub mod api;
mod core;
pub mod edge;
