//! What a worker can drive: [`opencl`], the platforms that the ICD loader of the node finds. CUDA's own driver is one more of them:
//! `cuda` is an OpenCL driver over it, with OpenCL's dispatch table, so that nothing above it knows of two kinds.
//!
//! Who checks what: the client checks what its API asks for, because there the program gets its error at once. This
//! crate does not rely on it. Whatever sizes, offsets and values a client sends, no call here touches memory outside its objects; what
//! would is refused with the code that OpenCL has for it. A *driver* that crashes takes the worker down, and
//! only that client's session.
//!
//! All objects are cheap to clone, and may be used from any thread.

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
