//! `libcudart.so.12` and `libcudart.so.13`: CUDA's runtime over the public driver interface.
//!
//! The driver is looked up at first use: the `libcuda.so.1` that the program already has, otherwise
//! the one beside this library, otherwise the system's. The libraries therefore work with
//! Penstock's driver and with any other driver, and know nothing of the pool.
//!
//! Both libraries are linked from one archive (`tools/cuda/link.sh`), each with the symbols of its
//! version and an object that holds its version number. [`api::table`] lists the functions that are
//! served and those that are not.
//!
//! * `edge`: the form of a C entry point, errors, and the state of a thread;
//! * `driver`: the table of the driver's functions;
//! * `core`: contexts, registered binaries, copies, arrays, textures;
//! * `api`: the functions.

pub mod api;
mod core;
mod driver;
mod edge;

pub use edge::version_of;
