//! `libcudart.so.12` and `libcudart.so.13`: CUDA's runtime interface over the public driver interface.
//!
//! The driver is found at first use: the `libcuda.so.1` that the program has, else the one beside the library, else the system's. So the
//! libraries work with Penstock's driver and with any other, and nothing of the pool is known here.
//!
//! Both libraries are linked of one archive (`tools/cuda/link.sh`), each with the symbols of its version and an object that says which one it
//! is. [`api::table`] has what is served and what is not.
//!
//! * `edge`: what is particular to a C interface: the form of an entry point, errors, what a thread has;
//! * `driver`: the table of the driver's functions;
//! * `core`: contexts, registered binaries, copies, arrays, textures;
//! * `api`: the functions.

pub mod api;
mod core;
mod driver;
mod edge;

pub use edge::version_of;
