//! The memory model of the pool, as a state machine without I/O, threads or clocks.
//!
//! The machine hears of commands with what they read and write, of client events (user events, and the ends of
//! commands that the client runs itself), of ends of commands, and of lost nodes. It says what is sent now and what is
//! held back, which bytes move between places first, what a command waits for at its worker, and when the host may
//! copy in place.
//!
//! # The model
//!
//! A command happens before another one if the second one names the event of the first in its wait list, follows it in
//! an in-order queue, or lies behind it across a barrier; if the host waited for the first before it enqueued the
//! second; or if the second waits for a user event that the host set after it waited for the first. Accesses of two
//! commands, or of a command and the host, that conflict and are in neither order are a race of the program. For
//! programs without races every order of sending that follows "happens before" gives the same bytes.
//!
//! The machine sends in such an order: a command is sent only after every command that it must follow, and never before
//! a client event that it must follow is set. So nothing that was sent depends on the program any more, everything that
//! was sent ends by itself, and the order of sending is a valid order of execution. Residency follows that order.
//!
//! * [`Machine`] takes the inputs and gives the outputs. It is made of three parts: what holds a command back
//!   (`machine`), where current bytes are (`regions`), and what writes the program's memory (`host`).
//! * [`Rule`] names each rule of the machine, so that a test can switch one off.
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
