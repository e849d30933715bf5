//! The OpenCL face of the pool: `libpenstock_opencl.so`, a driver for the ICD loader (1.0 and 2.0).
//!
//! * [`edge`]: all that is particular to a C interface: entry points, handles, arrays, queries.
//! * [`api`]: OpenCL's functions. Each checks its arguments against the specification's list of
//!   errors.
//! * `core`: the objects behind the handles, which never see a program's raw pointers. The file
//!   names are those of [`api`].
//!
//! [`api::table`] lists all functions; docs/opencl.md is generated from it.

pub mod api;
mod core;
pub mod edge;
