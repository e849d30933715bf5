//! Paths through the hosts: what a program does that has no way from device to device.

pub mod cuda;
pub mod local;
pub mod measure;
pub mod memory;
pub mod opencl;
pub mod rank;
mod stream;
