//! CUDA's driver as an OpenCL platform, for `crate::opencl`: objects whose first word is a dispatch table, as the objects of every
//! driver behind an ICD loader have it, over `libcuda.so.1`, which is opened at run time and absent on most machines.
//!
//! What OpenCL's words mean here is said in `penstock_wire::cuda`. Host pointers of commands must be without gaps, contexts have one
//! device, and there are no images, samplers, pipes, sub-devices and no OpenCL C: `refused` has what answers that.
//!
//! * A queue is a stream ([`stream`]). A command goes to it at once, on the thread that enqueues it, unless it has to wait for
//!   something that CUDA does not know (a user event, a command that itself waits) or for room in pinned memory; then a thread of the
//!   queue, the submitter, does it, and what comes behind it waits too, so that the order stays.
//! * The end of a command is seen by another thread of the queue, which waits for its CUDA event. No host functions: the device would
//!   stand still while they run, they must not call CUDA, and they do not come where a context has failed.
//! * CUDA's failures are kept as numbers (`penstock_wire::cuda::status`). Most of them last: the context is lost, and with it the
//!   process, which serves one client.

mod answer;
mod clock;
mod command;
mod context;
mod device;
mod driver;
mod enqueue;
mod event;
mod kernel;
mod mapped;
mod memory;
mod module;
mod names;
mod object;
mod parts;
mod pinned;
mod platform;
mod program;
mod queue;
mod reaper;
mod refused;
mod shared;
mod stream;
mod table;
mod transfer;

pub(crate) use mapped::Mapped;
pub(crate) use pinned::Pinned;
pub(crate) use platform::platform;
pub(crate) use reaper::drain;
pub(crate) use table::function;
