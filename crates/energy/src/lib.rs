//! Energy of a node in joules, from whatever counters it has, and core-seconds always.
//!
//! A figure says which component it is of, which source it is from, and how it was taken. What cannot be measured is `unavailable`, with
//! the reason, and never 0. Nothing is estimated, but by a [`PowerModel`] that the caller brings, in fields whose names begin with `model_`.
//!
//! | module | is |
//! |---|---|
//! | `sources` | NVML, RAPL through powercap and through perf, hwmon: which channels a node has, and which of them live |
//! | `tally` | readings of one channel become joules: wrap, reset, integration of samples. No clock, no I/O |
//! | [`Meter`] | reads all channels at start and stop, and by one thread between where that is needed |
//! | [`Report`] | figures, totals, net of idle, coverage |
//! | [`cores`] | core-seconds of processes and of the host |
//! | [`command`] | a command and what it took |
//! | `api` | the functions of `penstock_energy.h` |
//!
//! ```no_run
//! use penstock_energy::{Meter, Options};
//! use std::time::Duration;
//!
//! let mut meter = Meter::open(&Options::of_process());
//! meter.idle(Duration::from_secs(5))?;
//! meter.start()?;
//! // ... what is to be measured ...
//! meter.stop()?;
//! meter.idle(Duration::from_secs(5))?;
//! let report = meter.report()?;
//! match report.total.joules {
//!     Some(joules) => println!("{joules} J of {}", report.total.covered.join(", ")),
//!     None => println!("unavailable ({})", report.total.unavailable.unwrap_or_default()),
//! }
//! # Ok::<(), penstock_energy::Error>(())
//! ```

mod api;
pub mod command;
mod component;
pub mod cores;
mod error;
mod meter;
mod model;
mod options;
mod reason;
mod report;
mod sources;
mod tally;

pub use component::{Class, Component, Method, Source};
pub use cores::CoreSeconds;
pub use error::Error;
pub use meter::{Channel, Meter};
pub use model::{ModelFigures, PowerModel};
pub use options::{Options, Roots};
pub use reason::Reason;
pub use report::{Check, Figure, Idle, Missing, Report, Total};
