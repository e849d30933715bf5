//! What communication between devices costs, on each way that there is: `penstock bench comm`.
//!
//! | module | is |
//! |---|---|
//! | [`plan`] | what is measured, and for how long |
//! | [`host`] | the paths through the hosts: processes with a local OpenCL device each, and MPI or TCP between them |
//! | [`wire`] | MPI and TCP |
//! | [`group`] | those processes, as whoever started them sees them |
//! | [`point`] | one figure, and what it cost |

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
