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

/// How many streams the current context has, with those that were destroyed while they were busy. For tests: no function of the
/// interface tells.
#[doc(hidden)]
pub fn streams_of_current() -> usize {
    core::context::Context::current().map_or(0, |context| context.stream_count())
}
