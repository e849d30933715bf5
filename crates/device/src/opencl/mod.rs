//! The OpenCL back end: a safe layer over the ICD loader of the node. One file for each kind of object; commands by what
//! they move.

mod account;
mod api;
mod command;
mod context;
mod device;
mod driver;
mod event;
mod format;
pub(crate) mod home;
mod image;
mod image_command;
mod kernel;
mod memory;
mod pins;
mod platform;
mod probe;
mod program;
mod queue;
mod reclaim;
mod region;
mod report;
mod retire;
mod sampler;
mod transfer;
mod watch;

pub use account::Share;
pub use command::Range;
pub use context::Context;
pub use device::Device;
pub use driver::{Driver, LoadError};
pub use event::{Event, Times};
pub use format::pixel_bytes;
pub use home::{Home, HomeBytes, HostMemory};
pub use kernel::{Arg, Kernel};
pub use memory::Mem;
pub use pins::share_cpus;
pub use platform::Platform;
pub use program::Program;
pub use queue::{Queue, Want};
pub use region::Rect;
pub use sampler::Sampler;
pub use transfer::Reading;
