//! A power model: watts that the owner states, times measured core-seconds. Never mixed with the
//! figures of counters.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cores::CoreSeconds;
use crate::error::Error;

/// Maximum size of a model's file in bytes. A model has a handful of lines.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Watts of a node's parts, as its owner states them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    /// Power of a core that works.
    pub busy_core_watts: f64,
    /// Power of a core that is idle.
    pub idle_core_watts: f64,
    /// Constant power of the rest of the node.
    #[serde(default)]
    pub base_watts: f64,
    #[serde(skip)]
    pub file: PathBuf,
}

/// Figures of a model for a measurement. They do not include accelerators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFigures {
    pub model_file: PathBuf,
    /// The model's watts for a core that works.
    pub model_busy_core_watts: f64,
    /// The model's watts for an idle core.
    pub model_idle_core_watts: f64,
    /// The model's watts for the rest.
    pub model_base_watts: f64,
    /// Core-seconds of the command or process, times the watts of a busy core.
    pub model_busy_joules: Option<f64>,
    /// Joules of all cores of the host and of the rest, for the whole time.
    pub model_host_joules: Option<f64>,
    /// What the figures do not include.
    pub model_without: &'static str,
}

impl PowerModel {
    /// Reads a TOML file with `busy_core_watts`, `idle_core_watts` and, optionally, `base_watts`.
    ///
    /// # Errors
    /// [`Error::Model`] if the file cannot be read or parsed, or if watts are negative or NaN.
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

    /// Computes the figures for `seconds` and the activity of cores in that time.
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
