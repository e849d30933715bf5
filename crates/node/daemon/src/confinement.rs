//! How far the workers of a daemon must be confined: options, variables, and the status.

use std::ffi::OsString;

use penstock_confine::{Lack, Level, Network, Report, UnknownLevel};
use penstock_process::variable::{self, Variable};
use serde_json::{Value, json};

/// Levels that an option or a variable names; an option comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// How far workers confine themselves, if the host can.
    pub(crate) wanted: Level,
    /// The level below which clients are refused.
    pub(crate) required: Level,
}

/// A level of confinement that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinementError {
    /// A variable names no level.
    #[error("{variable}: {source}")]
    Unknown { variable: &'static str, source: UnknownLevel },
    /// The daemon is told to do less than it requires.
    #[error(
        "--require-confinement {required} asks for more than --confine {wanted} does; every \
         client would be refused"
    )]
    Contradiction { wanted: Level, required: Level },
}

impl Levels {
    /// Reads the levels. What is misspelt is an error: less confinement than the administrator
    /// meant must not go unnoticed.
    pub(crate) fn choose(
        wanted: Option<Level>,
        required: Option<Level>,
    ) -> Result<Self, ConfinementError> {
        let levels = Self {
            wanted: wanted.or(named(&variable::CONFINE)?).unwrap_or_default(),
            required: required.or(named(&variable::REQUIRE_CONFINEMENT)?).unwrap_or(Level::Off),
        };
        let Self { wanted, required } = levels;
        if required > wanted {
            return Err(ConfinementError::Contradiction { wanted, required });
        }
        Ok(levels)
    }
}

fn named(variable: &Variable) -> Result<Option<Level>, ConfinementError> {
    let read = |value: OsString| value.to_string_lossy().trim().parse();
    let level = variable.value().map(read).transpose();
    level.map_err(|source| ConfinementError::Unknown { variable: variable.name, source })
}

/// Returns what the status says about the confinement of workers; null before it is known.
pub(crate) fn told(report: Option<&Report>, required: Level) -> Value {
    let Some(report) = report else { return Value::Null };
    let lack = |lack: &Lack| json!({ "what": lack.what, "remedy": lack.remedy });
    json!({
        "level": report.level.name(),
        "about": report.level.about(),
        "wanted": report.wanted.name(),
        "required": required.name(),
        "network": match (report.network, report.level) {
            (Network::Closed, _) => "closed",
            (Network::Open, Level::Off) => "open, because nothing confines workers",
            (Network::Open, _) => {
                "open, because UCX or PENSTOCK_LIBCUDA_NODES makes connections in workers"
            }
        },
        "runs_programs": report.runs_programs,
        "threads": report.threads,
        "lacks": report.lacks.iter().map(lack).collect::<Vec<_>>(),
        "notes": report.notes.iter().map(lack).collect::<Vec<_>>(),
        "refusal": report.refusal(required),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_before_defaults_and_must_agree() {
        let levels = Levels::choose(None, None).unwrap();
        assert_eq!((levels.wanted, levels.required), (Level::Full, Level::Off));
        let levels = Levels::choose(Some(Level::Files), Some(Level::Calls)).unwrap();
        assert_eq!((levels.wanted, levels.required), (Level::Files, Level::Calls));
        let error = Levels::choose(Some(Level::Calls), Some(Level::Full)).unwrap_err();
        assert!(error.to_string().contains("--require-confinement full"), "{error}");
    }

    #[test]
    fn the_status_names_level_reason_and_remedy() {
        assert_eq!(told(None, Level::Off), Value::Null);
        let off = told(Some(&Report::off()), Level::Files);
        assert_eq!((off["level"].as_str(), off["required"].as_str()), (Some("off"), Some("files")));
        assert_eq!(off["network"], "open, because nothing confines workers");
        assert!(off["refusal"].as_str().unwrap().contains("--confine off"), "{off}");
        assert_eq!(told(Some(&Report::off()), Level::Off)["refusal"], Value::Null);
    }
}
