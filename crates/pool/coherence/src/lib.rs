//! The memory model of the pool, as a state machine without I/O, threads or clocks.
//!
//! The inputs of the machine are commands with the memory that they read and write, client events
//! (user events, and the ends of work that the client does itself), ends of commands, and losses of
//! nodes. The machine decides which commands are sent now and which are held back, which bytes move
//! between places first, what a command waits for at its worker, and when the host may copy in
//! place.
//!
//! # The model
//!
//! A command happens before another one in these cases: the second names the event of the first in
//! its wait list, follows it in an in-order queue, or lies behind it across a barrier; or the host
//! waited for the first before it enqueued the second; or the second waits for a user event that
//! the host set after it waited for the first. Two conflicting accesses, of two commands or of a
//! command and the host, that are in neither order are a race of the program. For programs without
//! races every order of sending that follows "happens before" gives the same bytes.
//!
//! The machine sends in such an order. A command is sent only after every command that it must
//! follow was sent, and after every client event that it must follow was set. So nothing that was
//! sent depends on the program any more, everything that was sent ends by itself, and the order of
//! sending is a valid order of execution. Residency follows that order.
//!
//! * [`Machine`] takes the inputs and returns the decisions. It has three parts: the reasons that
//!   hold commands back (`machine`), the places of current bytes (`regions`), and the commands that
//!   write the program's memory (`host`).
//! * [`Rule`] names each rule of the machine, so that a test can switch it off.
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
