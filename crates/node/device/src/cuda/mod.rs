//! CUDA's driver, over `libcuda.so.1`, which is opened at run time and is absent on most machines.
//!
//! `penstock_wire::cuda` says what OpenCL's terms mean here. Host memory of commands must have no
//! gaps, and a context has one device. There are no images, samplers, pipes, sub-devices and no
//! OpenCL C: the default methods of the traits answer such calls.
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
//!
//! From the lowest file to the highest: `driver` has CUDA's functions. `device`, `reaper` (which
//! frees), `slot` and `pinned` (host memory), `clock` and `event` describe GPUs and what happens on
//! them. `module` has the kernels; `command`, `library` and `stream` run them, the transfers and
//! the calls of cuBLAS and cuFFT. Above them
//! are the objects of the traits: `context`, `memory`, `kernel`, `program`, `queue`, and
//! `platform`, which makes them.

mod about;
mod address;
mod clock;
mod command;
mod context;
mod device;
mod driver;
mod event;
mod kernel;
mod library;
mod mapped;
mod memory;
mod module;
mod names;
mod parts;
mod pinned;
mod platform;
mod program;
mod queue;
mod reaper;
mod shared;
mod slot;
mod stream;

pub(crate) use platform::platform;
pub(crate) use reaper::drain;
