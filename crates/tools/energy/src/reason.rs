//! Reasons why a channel cannot be measured: one for each cause, because remedies differ.

use std::io;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// Reason why a channel or figure is unavailable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel has no such file.
    #[error("there is no {}", .0.display())]
    Absent(PathBuf),
    /// The kernel has it but does not allow it to be read.
    #[error("no permission to read {what}: {remedy}")]
    NoPermission {
        what: String,
        /// Which users may read the source.
        remedy: String,
    },
    /// The source exists but has no such domain.
    #[error("{whole} has no {part}")]
    NoDomain {
        /// The source or the package.
        whole: String,
        part: String,
    },
    /// The counter can be opened but does not count.
    #[error(
        "dead counter: {what} opens, says {value}, and did not advance in {seconds:.1} s under load"
    )]
    Dead {
        what: String,
        /// The reading, in the counter's unit.
        value: u64,
        /// How long the counter was watched.
        seconds: f64,
    },
    /// The counter worked when it was tried, but stood still during the measurement.
    #[error(
        "the counter did not advance in {seconds:.1} s of the measurement, though it did before"
    )]
    Stopped {
        /// How long the counter stood still.
        seconds: f64,
    },
    /// The counter went back, but did not wrap: its driver was reloaded, or the host suspended.
    #[error("the counter was reset in the measurement: from {from} to {to}")]
    Reset { from: u64, to: u64 },
    /// The counter is only tried on request.
    #[error("not tried: {0}")]
    NotTried(String),
    /// The library cannot be opened.
    #[error("{library} cannot be opened: {reason}")]
    NoLibrary {
        /// Path or name of the library.
        library: String,
        /// Message of the dynamic loader.
        reason: String,
    },
    /// The library is Penstock's own, which shows the pool's devices instead of the node's.
    #[error(
        "{library} is Penstock's own library, which shows the pool's devices instead of this host's"
    )]
    OwnLibrary {
        /// Path or name of the library.
        library: String,
    },
    /// A function of the library failed.
    #[error("{function}: {text} ({code})")]
    Library {
        function: &'static str,
        /// The returned error code.
        code: u32,
        /// Description of the code.
        text: String,
    },
    /// The source exists but has no device.
    #[error("{0} has no devices")]
    NoDevice(&'static str),
    /// The text that was read does not have the form that the kernel documents.
    #[error("{what} says {text:?}, which is no {expected}")]
    Malformed {
        what: String,
        /// The text, cut off after `TEXT_SHOWN_MAX` characters.
        text: String,
        /// The expected form of the text.
        expected: &'static str,
    },
    /// Any other failure of the kernel.
    #[error("{what}: {text}")]
    Io {
        /// The file or event.
        what: String,
        /// Description of the error.
        text: String,
        /// Error number, or 0 if there is none.
        errno: i32,
    },
    /// There are more channels than this library reads.
    #[error("only the first {0} are read")]
    TooMany(usize),
    /// Nothing was measured because nothing was asked for.
    #[error("{0}")]
    NotMeasured(&'static str),
}

/// Maximum number of characters shown of a malformed text: they fit in a line of a terminal.
pub const TEXT_SHOWN_MAX: usize = 40;

impl Reason {
    /// Returns a word for programs that read reports.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent(_) => "absent",
            Self::NoPermission { .. } => "no_permission",
            Self::NoDomain { .. } => "no_domain",
            Self::Dead { .. } => "dead_counter",
            Self::Stopped { .. } => "stopped",
            Self::Reset { .. } => "reset",
            Self::NotTried(_) => "not_tried",
            Self::NoLibrary { .. } => "no_library",
            Self::OwnLibrary { .. } => "own_library",
            Self::Library { .. } => "library",
            Self::NoDevice(_) => "no_device",
            Self::Malformed { .. } => "malformed",
            Self::Io { .. } => "io",
            Self::TooMany(_) => "too_many",
            Self::NotMeasured(_) => "not_measured",
        }
    }

    /// Returns the meaning of a failed access to `path`.
    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Absent(path.to_path_buf()),
            io::ErrorKind::PermissionDenied => Self::NoPermission {
                what: path.display().to_string(),
                remedy: "root may, and any user who is given access to the file".to_owned(),
            },
            _ => Self::of_error(path.display().to_string(), error),
        }
    }

    pub(crate) fn of_error(what: String, error: &io::Error) -> Self {
        Self::Io { what, text: error.to_string(), errno: error.raw_os_error().unwrap_or_default() }
    }

    /// Reports a text that does not have the expected form.
    pub(crate) fn malformed(what: &Path, text: &str, expected: &'static str) -> Self {
        let text = text.chars().take(TEXT_SHOWN_MAX).collect();
        Self::Malformed { what: what.display().to_string(), text, expected }
    }
}

/// Writes the kind for programs and the text for people.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reason", 2)?;
        fields.serialize_field("kind", self.kind())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.end()
    }
}
