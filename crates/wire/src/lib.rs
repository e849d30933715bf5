//! Penstock's protocol: every call, frame, id and limit.
//!
//! * [`calls`] is the table of all calls; one entry makes the opcode, the frame's body, and a handler that the
//!   receiver must have or it does not compile.
//! * [`frame`] is the fixed header in front of each call, and the checks of everything that a peer may send.
//! * [`args`] is the encoding of kernel arguments beside a launch.
//! * [`hello`] is the opening of a link, before any call.
//! * [`describe`] is what a node tells of itself: platforms, devices, kernels.
//! * [`cuda`] is what is told beyond that where a node drives CUDA itself.
//! * [`limits`] names every limit, with its derivation.
//!
//! This crate does no I/O, reads no clock and has no unsafe code. Everything it decodes is taken for hostile.
#![forbid(unsafe_code)]

pub mod args;
pub mod calls;
pub mod cuda;
pub mod describe;
pub mod frame;
pub mod hello;
pub mod id;
pub mod limits;
pub mod status;
mod times;

pub use frame::{Call, Frame, FrameError, Header, Payload, PayloadRule, Request};
pub use id::Id;
pub use status::Status;
pub use times::{Times, TimesOf};
pub use zerocopy::little_endian::{I32, U16, U32, U64};
