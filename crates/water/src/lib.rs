//! The libWater face: `libwater.so`. A program sees devices of the whole cluster, picked by a query; what it asks of them becomes
//! commands ordered by events; the runtime sees them all and improves them.
//!
//! | module | is |
//! |---|---|
//! | `api` | the functions of `wtr.h` and `wtr_ext.h`: checks arguments, makes errors codes. The only place that knows C |
//! | `root` | the run's commands at the rank that runs the program; `root/plan.rs` makes jobs of a batch |
//! | `node` | one rank's scheduler; `node/moves.rs` moves bytes |
//! | `backend` | what drives a rank's devices |
//! | `transport` | bytes between ranks |
//! | `heap` | memory that kernels of several devices share; `backend` has what is particular to a back end |
//! | `record` | what happened, for graphs, traces, summaries and the watchdog |
//! | `runtime` | drives all of them, with a thread or without |

pub mod api;
pub mod backend;
pub mod clock;
pub mod command;
pub mod doorbell;
pub mod error;
pub mod heap;
pub mod launch;
pub mod node;
pub mod partition;
pub mod record;
pub mod root;
pub mod runtime;
pub mod settings;
pub mod simulator;
pub mod transport;
