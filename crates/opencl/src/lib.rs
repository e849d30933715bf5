//! The OpenCL face of the pool: `libpenstock_opencl.so`, a driver for the ICD loader (1.0 and 2.0).
//!
//! * [`edge`]: everything that is particular to a C interface: entry points, handles, arrays, information queries.
//! * [`api`]: OpenCL's functions. Each checks what the program gave, by the specification's own list of errors.
//! * `core`: the objects behind the handles, which know no raw pointers of programs. Same file names as in [`api`].
//!
//! [`api::table`] lists all functions; docs/opencl.md is made from it.

pub mod api;
mod core;
pub mod edge;
