//! The CUDA face of the pool: `libcuda.so.1`, the public driver interface, on any OpenCL device.
//!
//! * `edge`: everything that is particular to a C interface: entry points, handles, memory of the
//!   program.
//! * [`api`]: CUDA's functions. Each checks its arguments against the errors that the interface
//!   lists.
//! * `core`: the objects behind the handles. It uses no raw pointers of programs. Its files have
//!   the same names as those in [`api`].
//!
//! [`api::table`] lists all functions; docs/cuda.md is generated from it.

pub mod api;
mod core;
mod edge;

/// Number of streams of the current context, including destroyed streams that are still busy. For
/// tests: the interface has no function for it.
#[doc(hidden)]
pub fn streams_of_current() -> usize {
    core::context::Context::current().map_or(0, |context| context.stream_count())
}
