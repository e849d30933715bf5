//! The cost of communication between devices, on each available path: `penstock bench comm`.
//!
//! | module | is |
//! |---|---|
//! | [`plan`] | what is measured, and for how long |
//! | [`device`] | the paths on the devices: kernels that communicate, over the crate `client` |
//! | [`host`] | the paths through the hosts: processes with a local device each, over MPI or TCP |
//! | [`wire`] | MPI and TCP |
//! | [`group`] | those processes, as the process that started them sees them |
//! | [`point`] | one figure, and what it cost |
//!
//! The processes of [`host`] call the local OpenCL or CUDA, and MPI, as a plain program does.

pub mod chart;
pub mod comm;
pub mod device;
pub mod error;
pub mod group;
pub mod host;
pub mod plan;
pub mod point;
pub mod summary;
pub mod wire;

pub use error::{Error, Result};
