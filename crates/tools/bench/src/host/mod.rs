//! Paths through the hosts: what a program does if devices cannot reach each other.

pub mod cuda;
pub mod local;
pub mod measure;
pub mod memory;
pub mod opencl;
pub mod rank;
mod stream;
