//! Safe interface to what a worker can drive: [`opencl`], the platforms that the node's ICD loader
//! finds. CUDA's own driver is one more platform: `cuda` wraps it in an OpenCL driver with OpenCL's
//! dispatch table, so that the code above it handles only one kind of driver.
//!
//! The client checks the arguments that its API requires it to check, because there the program
//! gets the error at once. This crate does not rely on that: whatever sizes, offsets and values a
//! client sends, no call touches memory outside its objects; such a call fails with OpenCL's code.
//! A *driver* that crashes takes down the worker, and only that client's session.
//!
//! All objects are cheap to clone and may be used from any thread.

mod cuda;
pub mod opencl;
mod staging;

pub use opencl::{
    Arg, Context, Device, Driver, Event, Home, HomeBytes, HostMemory, Kernel, LoadError, Mem,
    Platform, Program, Queue, Range, Reading, Rect, Sampler, Share, Times, Want, pixel_bytes,
    share_cpus,
};
pub use penstock_wire::status::Status;
pub use staging::Staged;
