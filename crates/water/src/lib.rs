//! The libWater face: `libwater.so`. A program sees devices of the whole cluster, selected by a
//! query. Its calls become commands ordered by events; the runtime sees all of them and improves
//! their execution.
//!
//! | module | is |
//! |---|---|
//! | `api` | the functions of `wtr.h` and `wtr_ext.h`: the only module that knows C |
//! | `root` | the commands of the run; `root/plan.rs` turns a batch into jobs |
//! | `node` | the scheduler of one rank; `node/moves.rs` moves bytes |
//! | `backend` | drives the devices of a rank |
//! | `transport` | bytes between ranks |
//! | `heap` | memory that kernels of several devices share |
//! | `record` | records events for graphs, traces, summaries and the watchdog |
//! | `runtime` | drives all of them, with a thread or without |

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
pub mod root;
pub mod runtime;
pub mod settings;
pub mod simulation;
pub mod simulator;
pub mod transport;
