//! What a worker can drive. One back end so far: [`opencl`], the platforms that the ICD loader of the node finds. Others (CUDA, a
//! simulated device) get a folder beside it, with the same file names.
//!
//! Who checks what: the client checks what its API asks for, because there the program gets its error at once. This
//! crate does not rely on it. Whatever sizes, offsets and values a client sends, no call here touches memory outside its objects; what
//! would is refused with the code that OpenCL has for it. A *driver* that crashes takes the worker down, and
//! only that client's session.
//!
//! All objects are cheap to clone, and may be used from any thread.

pub mod opencl;
mod staging;

pub use opencl::{
    Arg, Context, Device, Driver, Event, Home, HomeBytes, HostMemory, Kernel, LoadError, Mem, Platform,
    Program, Queue, Range, Reading, Rect, Sampler, Times, Want, pixel_bytes,
};
pub use penstock_wire::status::Status;
pub use staging::Staged;
