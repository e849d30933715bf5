//! A power model: watts that somebody states, times core-seconds that are measured. Never mixed with what counters say.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cores::CoreSeconds;
use crate::error::Error;

/// Largest file of a model, in bytes: it has a handful of lines.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Watts of a node's parts, as its owner states them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    /// A core that works.
    pub busy_core_watts: f64,
    /// A core that does nothing.
    pub idle_core_watts: f64,
    /// The rest of the node, all the time.
    #[serde(default)]
    pub base_watts: f64,
    /// Where it is from.
    #[serde(skip)]
    pub file: PathBuf,
}

/// What a model makes of a measurement. No accelerator is in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFigures {
    /// The model.
    pub model_file: PathBuf,
    /// Its watts of a core that works.
    pub model_busy_core_watts: f64,
    /// Its watts of a core that does nothing.
    pub model_idle_core_watts: f64,
    /// Its watts of the rest.
    pub model_base_watts: f64,
    /// The core-seconds of the command or process, at the watts of a busy core.
    pub model_busy_joules: Option<f64>,
    /// All cores of the host and the rest, for the whole time.
    pub model_host_joules: Option<f64>,
    /// What is not in it.
    pub model_without: &'static str,
}

impl PowerModel {
    /// Reads a TOML file with `busy_core_watts`, `idle_core_watts` and, if wanted, `base_watts`.
    ///
    /// # Errors
    /// [`Error::Model`] if it cannot be read, or is no such file, or has watts that are negative or no number.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Model { path: path.to_path_buf(), reason };
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > FILE_BYTES_MAX {
            return Err(wrong(format!("it has {size} bytes, more than {FILE_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut model: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let watts = [model.busy_core_watts, model.idle_core_watts, model.base_watts];
        if watts.iter().any(|watts| !watts.is_finite() || *watts < 0.0) {
            return Err(wrong("watts must be numbers that are not negative".to_owned()));
        }
        model.file = path.to_path_buf();
        Ok(model)
    }

    /// What it makes of `seconds` and of what cores did in them.
    pub(crate) fn figures(&self, seconds: f64, cores: &CoreSeconds) -> ModelFigures {
        let host = cores.host_busy.zip(cores.host_idle);
        ModelFigures {
            model_file: self.file.clone(),
            model_busy_core_watts: self.busy_core_watts,
            model_idle_core_watts: self.idle_core_watts,
            model_base_watts: self.base_watts,
            model_busy_joules: cores.busy.map(|busy| busy * self.busy_core_watts),
            model_host_joules: host.map(|(busy, idle)| {
                busy * self.busy_core_watts
                    + idle * self.idle_core_watts
                    + seconds * self.base_watts
            }),
            model_without: "accelerators",
        }
    }
}
