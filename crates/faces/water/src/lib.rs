//! The libWater face: `libwater.so`. A program sees devices of the whole cluster, selected by a
//! query. Its calls become commands ordered by events; the runtime sees all of them and improves
//! their execution.
//!
//! The modules are layers: a module names only modules further down.
//!
//! | layer | module | is |
//! |---|---|---|
//! | calls | `api` | the functions of `wtr.h` and `wtr_ext.h`: the only module that knows C |
//! | | `launch`, `simulation`, `settings` | start a run with what the environment asks for |
//! | processes | `runtime` | drives all below; `runtime/recording.rs` records |
//! | objects | `root` | the commands of the run, and how a batch becomes jobs |
//! | | `node` | the scheduler of one rank; `node/moves.rs` moves bytes |
//! | | `backend` | drives the devices of a rank |
//! | | `record` | keeps events for graphs, traces, summaries and the watchdog |
//! | | `heap/meet.rs` | connects the members of a heap |
//! | | `transport` | bytes between ranks |
//! | data | `message` | the messages between ranks |
//! | | `request` | a command as the program asks for it |
//! | | `command`, `heap` | commands and plans of heaps, which mean the same on every rank |
//! | | `partition`, `heap/resident.rs` | decisions without state |
//! | | `clock`, `doorbell`, `error`, `host`, `simulator` | what all others need |
//!
//! A command takes this way, and [`command::Command`] is its only description:
//!
//! 1. A function of `api` checks its arguments and issues a `Request` (`request.rs`).
//! 2. `root/mod.rs` keeps it in a batch. `root/batch.rs` closes the batch; `root/collect.rs` finds
//!    transfers that belong together, and `root/collective.rs` decides by the model in
//!    `root/cost.rs` what replaces them.
//! 3. `root/plan.rs` and `root/group.rs` turn the commands into jobs, which go to their ranks.
//! 4. `node/mod.rs` starts a job when its waits have ended, and gives it to the back end. If its
//!    bytes come from or go to other ranks, `node/moves.rs` moves them.
//! 5. `backend/opencl.rs`, `backend/pool/task.rs` or `backend/sim.rs` performs the command.
//! 6. The end goes back through the node and the root to the program.

pub mod api;
pub mod backend;
pub mod clock;
pub mod command;
pub mod doorbell;
pub mod error;
pub mod heap;
pub mod host;
pub mod launch;
pub mod message;
pub mod node;
pub mod partition;
pub mod record;
pub mod request;
pub mod root;
pub mod runtime;
pub mod settings;
pub mod simulation;
pub mod simulator;
pub mod transport;
