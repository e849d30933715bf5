//! Energy of a node in joules, from all counters that it has, and core-seconds.
//!
//! A figure names its component, its source and its method. What cannot be measured is
//! `unavailable` with a reason, and never 0. Nothing is estimated, except by a [`PowerModel`] that
//! the caller provides, in fields whose names begin with `model_`.
//!
//! Each module uses only those above it in this table, and the types for components, options and
//! reasons:
//!
//! | module | contents |
//! |---|---|
//! | `sources` | NVML, RAPL through powercap and perf, hwmon: finds a node's channels and those that work |
//! | `tally` | converts readings of one channel to joules: wrap, reset, integration. No clock, no I/O |
//! | [`cores`] | core-seconds of processes and of the host |
//! | `span` | what one span of time yields: readings of each channel, and core-seconds |
//! | [`Report`] | figures, totals, net of idle, coverage; made from spans |
//! | [`Meter`] | reads all channels at start and stop, and some in between by a thread |
//! | [`command`] | measures a command |
//! | `api` | the functions of `penstock_energy.h` |
//!
//! ```no_run
//! use penstock_energy::{Meter, Options};
//! use std::time::Duration;
//!
//! let mut meter = Meter::open(&Options::of_process());
//! meter.idle(Duration::from_secs(5))?;
//! meter.start()?;
//! // ... the work to measure ...
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
mod span;
mod tally;

pub use component::{Class, Component, Method, Source};
pub use cores::CoreSeconds;
pub use error::Error;
pub use meter::{Channel, Meter};
pub use model::{ModelFigures, PowerModel};
pub use options::{Options, Roots};
pub use reason::Reason;
pub use report::{Check, Figure, Idle, Missing, Report, Total};
