//! Safe interface to what a worker can drive: the OpenCL platforms that the node's ICD loader
//! finds, and CUDA's own driver, which is one more platform. For tests, a process can have a
//! simulated device instead of all others.
//!
//! The client checks the arguments that its API requires it to check, because there the program
//! gets the error at once. This crate does not rely on that: whatever sizes, offsets and values a
//! client sends, no call touches memory outside its objects; such a call fails with OpenCL's code.
//! A *driver* that crashes takes down the worker, and only that client's session.
//!
//! All objects are cheap to clone and may be used from any thread.
//!
//! # Layers
//!
//! Each layer uses only those below it.
//!
//! 1. `load` finds the drivers.
//! 2. `context`, `mem`, `image`, `queue`, `program`, `library` and `probe` have public methods.
//!    They check what a client may have got wrong, once for all drivers.
//! 3. `opencl`, `cuda` and `null` are the drivers. They do not know each other.
//! 4. `driver` and `event` say what a driver must be able to do (traits), and define the objects.
//!    `command` and `image_command` define the commands, each beside the public method that checks
//!    and enqueues it.
//! 5. `home`, `staging`, `account`, `answer`, `region` and `format` know nothing of drivers.

mod account;
mod answer;
mod command;
mod context;
mod cuda;
mod driver;
mod event;
mod format;
mod home;
mod image;
mod image_command;
mod library;
mod load;
mod mem;
mod null;
mod opencl;
mod probe;
mod program;
mod queue;
mod region;
mod staging;

pub use account::{Lender, Share, borrow_from};
pub use driver::{
    Arg, Context, Device, Failed, Kernel, Mem, Platform, Program, Queue, Sampler, Want,
};
pub use event::{Event, Reading, Times};
pub use format::pixel_bytes;
pub use home::{Home, HostMemory};
pub use library::{LibraryArena, LibraryOperand};
pub use load::{Driver, LoadError};
pub use mem::HomeBytes;
pub use opencl::share_cpus;
pub use penstock_wire::IndexSpace;
pub use penstock_wire::status::Status;
pub use region::Rect;
pub use staging::Staged;
