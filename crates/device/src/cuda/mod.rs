//! CUDA's driver as an OpenCL platform for `crate::opencl`. The first word of each object is a
//! dispatch table, as in every driver behind an ICD loader. The objects use `libcuda.so.1`, which
//! is opened at run time and is absent on most machines.
//!
//! `penstock_wire::cuda` says what OpenCL's terms mean here. Host memory of commands must have no
//! gaps, and a context has one device. There are no images, samplers, pipes, sub-devices and no
//! OpenCL C: `refused` has the functions that answer such calls.
//!
//! * A queue is a stream ([`stream`]). The thread that enqueues a command usually gives it to the
//!   stream at once. If the command has to wait for something unknown to CUDA (a user event, a
//!   command that itself waits) or for free pinned memory, a thread of the queue, the submitter,
//!   issues it later, together with everything behind it, so that the order stays.
//! * Another thread of the queue waits for the command's CUDA event and so sees its end. Host
//!   functions are not used: the device would stand still while they run, they must not call CUDA,
//!   and CUDA does not call them in a context that has failed.
//! * CUDA's errors are kept as numbers (`penstock_wire::cuda::status`). Most of them are permanent:
//!   the context is lost, and with it the process, which serves one client.

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
