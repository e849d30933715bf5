//! The memory model of the pool, as a state machine without I/O, threads or clocks.
//!
//! The inputs of the machine are commands with the memory that they read and write, client events
//! (user events, and the ends of work that the client does itself), ends of commands, and losses of
//! nodes. The machine decides which commands are sent now and which are held back, which bytes move
//! between places first, what a command waits for at its worker, and when the host may copy in
//! place.
//!
//! docs/memory-model.md has the model, the argument why it is right, and what the machine chooses
//! where OpenCL's specification leaves something open.
//!
//! * [`Machine`] takes the inputs and returns the decisions. It has three parts: the reasons that
//!   hold commands back (`machine`), the places of current bytes (`regions`), and the commands that
//!   write the program's memory (`host`).
//! * [`Rule`] names each rule of the machine, so that a test can switch it off.
//! * `explore`, a feature, runs random programs on the machine and checks them.
#![forbid(unsafe_code)]

mod command;
#[cfg(feature = "explore")]
pub mod explore;
mod host;
mod machine;
mod names;
mod regions;
mod rules;

pub use command::{Access, Action, Fetch, InPlace, Plan, Source, Submit, Sync, Use, Verdict};
pub use host::HostShape;
pub use machine::Machine;
pub use names::{AllocationId, CommandId, ContextId, NodeId, Place, QueueId};
pub use regions::GRAIN_BYTES;
pub use rules::Rule;
