//! Penstock's protocol: every call, frame, id and limit.
//!
//! * [`calls`] is the table of all calls. One entry generates the opcode, the body of the frame,
//!   and a handler that the receiver must have to compile.
//! * [`frame`] is the fixed header in front of each call, and the checks of everything that a peer
//!   may send.
//! * [`args`] is the encoding of kernel arguments beside a launch.
//! * [`headers`] is the files that a program includes, which travel with it.
//! * [`hello`] is the opening of a link, before any call.
//! * [`invitation`] is how a bridge gets a one-time key for its client.
//! * [`describe`] is how a node describes itself: platforms, devices, kernels.
//! * [`library`] is the calls of libraries on the memory of a device.
//! * [`cuda`] is what a node that drives CUDA itself tells beyond that.
//! * [`trace`] is the format of the files that record all frames of a process.
//! * [`limits`] names every limit and gives its derivation.
//!
//! This crate does no I/O, reads no clock and has no unsafe code. It treats every byte it decodes
//! as hostile.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod administration;
pub mod args;
pub mod calls;
pub mod cuda;
pub mod describe;
pub mod frame;
pub mod headers;
pub mod hello;
pub mod id;
pub mod invitation;
pub mod library;
pub mod limits;
mod space;
pub mod status;
pub mod text;
mod times;
pub mod trace;

pub use frame::{Call, Frame, FrameError, Header, Payload, PayloadRule, Request};
pub use id::Id;
pub use space::{IndexSpace, SpaceFrame};
pub use status::Status;
pub use times::{Times, TimesOf};
pub use zerocopy::little_endian::{I32, U16, U32, U64};
