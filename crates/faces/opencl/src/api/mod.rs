//! OpenCL's functions by sections of the specification. Programs' raw pointers stay in this module.

pub mod buffer;
pub mod build;
pub mod commands;
pub mod context;
pub mod device;
pub mod event;
pub mod heap;
pub mod icd;
pub mod image;
pub mod kernel;
pub mod launch;
pub mod map;
pub mod memory;
pub mod pixels;
pub mod platform;
pub mod program;
pub mod queue;
pub mod sampler;
pub mod svm;
pub mod table;
pub(crate) mod waits;
