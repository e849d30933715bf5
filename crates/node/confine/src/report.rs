//! What was reached, what is missing, why, and what to do about it.

use serde::{Deserialize, Serialize};

use crate::level::Level;

/// Whether a worker can reach networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The worker makes no sockets for networks.
    Closed,
    /// Something in the worker connects to networks itself, so nothing restricts to which.
    #[default]
    Open,
}

/// Something that a worker lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// What is not restricted, and why.
    pub what: String,
    /// What the administrator can do.
    pub remedy: String,
}

impl Lack {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

/// What confines a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The level that was reached.
    pub level: Level,
    /// The level that was asked for.
    pub wanted: Level,
    pub network: Network,
    /// Whether a driver may run programs, as PoCL runs the linker.
    pub runs_programs: bool,
    /// Whether a driver connects to a service of this host.
    pub has_services: bool,
    /// Number of threads that were looked at after the last step.
    pub threads: usize,
    /// What keeps the worker from a higher level.
    pub lacks: Vec<Lack>,
    /// What else the administrator should know.
    pub notes: Vec<Lack>,
}

/// The steps that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) basic: bool,
    pub(crate) calls: bool,
    pub(crate) files: bool,
    pub(crate) scopes: bool,
}

impl Steps {
    /// Returns the highest level all of whose steps worked.
    pub(crate) fn level(self) -> Level {
        let steps = [self.basic, self.calls, self.files, self.scopes];
        let reached = steps.into_iter().take_while(|worked| *worked).count();
        Level::ALL.get(reached).copied().unwrap_or_default()
    }
}

impl Report {
    /// Returns a report on a worker that nothing restricts.
    #[must_use]
    pub fn off() -> Self {
        let what = "nothing confines the worker, as its daemon was told";
        Self {
            level: Level::Off,
            wanted: Level::Off,
            network: Network::Open,
            runs_programs: true,
            has_services: false,
            threads: 0,
            lacks: vec![Lack::new(what, "start the daemon without --confine off")],
            notes: Vec::new(),
        }
    }

    /// Returns why clients are refused if the level is below `least`.
    #[must_use]
    pub fn refusal(&self, least: Level) -> Option<String> {
        if self.level >= least {
            return None;
        }
        let (what, remedy) = match self.lacks.first() {
            Some(Lack { what, remedy }) => (what.as_str(), remedy.as_str()),
            None => ("the daemon was told to do no more", "start it with another --confine"),
        };
        Some(format!(
            "workers reach the level `{}` of confinement, and --require-confinement asks for \
             `{least}`: {what}; {remedy}, or ask for less",
            self.level
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_needs_all_steps_below_it() {
        let all = Steps { basic: true, calls: true, files: true, scopes: true };
        for (steps, level) in [
            (all, Level::Full),
            (Steps { scopes: false, ..all }, Level::Files),
            (Steps { files: false, ..all }, Level::Calls),
            (Steps { calls: false, ..all }, Level::Basic),
            (Steps { basic: false, ..all }, Level::Off),
            (Steps::default(), Level::Off),
        ] {
            assert_eq!(steps.level(), level, "{steps:?}");
        }
    }

    #[test]
    fn a_refusal_names_level_reason_and_remedy() {
        let lacks = vec![Lack::new("this kernel has no Landlock", "boot with lsm=landlock")];
        let report = Report { level: Level::Calls, wanted: Level::Full, lacks, ..Report::off() };
        assert_eq!(report.refusal(Level::Calls), None);
        assert_eq!(
            report.refusal(Level::Files).unwrap(),
            "workers reach the level `calls` of confinement, and --require-confinement asks for \
             `files`: this kernel has no Landlock; boot with lsm=landlock, or ask for less"
        );
    }
}
