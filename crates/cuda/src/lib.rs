//! The CUDA face of the pool: `libcuda.so.1`, the public driver interface, on any OpenCL device.
//!
//! * `edge`: everything that is particular to a C interface: entry points, handles, memory of the program.
//! * [`api`]: CUDA's functions. Each checks what the program gave, by the interface's own list of errors.
//! * `core`: the objects behind the handles, which know no raw pointers of programs. Same file names as in [`api`].
//!
//! [`api::table`] lists all functions; docs/cuda.md is made from it.

pub mod api;
mod core;
mod edge;
