//! What the user asks to be recorded.

use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_process::variable;

use crate::error::Error;

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `WTR_GRAPH`: path of the graphs, written at the end.
    pub graph: Option<PathBuf>,
    /// `WTR_TRACE`: path of the trace, written at the end.
    pub trace: Option<PathBuf>,
    /// `WTR_SUMMARY`: path of the summary; `1` is the standard error output.
    pub summary: Option<PathBuf>,
    /// `WTR_RECORD=1`, or one of the three above: everything is kept, for `wtr_dump_graph`.
    pub record: bool,
    /// Watchdog period from `WTR_WATCHDOG`, in ns.
    pub watchdog_ns: Option<u64>,
}

/// Value of `WTR_SUMMARY` that selects the standard error output.
pub(super) const TO_STDERR: &str = "1";

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn of_environment() -> Result<Self, Error> {
        Self::of(&variable::text)
    }

    /// Reads the settings from these variables.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let record = variable("WTR_RECORD").map_or(Ok(false), |value| {
            variable::flag(&value)
                .ok_or_else(|| Error::Invalid(format!("WTR_RECORD is {value}, and must be 0 or 1")))
        })?;
        let watchdog_ns = variable("WTR_WATCHDOG").map(|value| nanoseconds(&value)).transpose()?;
        let path = |name| variable(name).map(PathBuf::from);
        let (graph, trace, summary) = (path("WTR_GRAPH"), path("WTR_TRACE"), path("WTR_SUMMARY"));
        let record = record || graph.is_some() || trace.is_some() || summary.is_some();
        Ok(Self { graph, trace, summary, record, watchdog_ns })
    }

    /// Creates the files, so that a failure is reported before the work and not after it.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn make_files(&self) -> Result<(), Error> {
        let summary = self.summary.as_deref().filter(|path| *path != Path::new(TO_STDERR));
        for (name, path) in [
            ("WTR_GRAPH", self.graph.as_deref()),
            ("WTR_TRACE", self.trace.as_deref()),
            ("WTR_SUMMARY", summary),
        ] {
            let Some(path) = path else { continue };
            File::create(path).map_err(|reason| {
                Error::Invalid(format!(
                    "{name} names {}, which cannot be created: {reason}",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }
}

/// Parses seconds, and converts them to ns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(value: &str) -> Result<u64, Error> {
    let seconds = value.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| {
        Error::Invalid(format!("WTR_WATCHDOG is {value}, and must be a number of seconds above 0"))
    })?;
    Ok((seconds * 1e9) as u64)
}
