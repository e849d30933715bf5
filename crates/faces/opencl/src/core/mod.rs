//! The objects behind the handles. The layers are in the documentation of the crate.

pub(crate) mod area;
pub(crate) mod arg;
pub(crate) mod build;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod extensions;
pub(crate) mod format;
pub(crate) mod image;
pub(crate) mod kernel;
pub(crate) mod map;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod ndrange;
pub(crate) mod platform;
pub(crate) mod pool;
pub(crate) mod program;
pub(crate) mod queue;
pub(crate) mod rect;
pub(crate) mod sampler;
pub(crate) mod shadow;
pub(crate) mod svm;
pub(crate) mod target;
