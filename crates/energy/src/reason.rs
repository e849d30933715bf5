//! Why a channel cannot be measured. Each cause is told apart, since each has another remedy.

use std::io;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// Why something is unavailable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel has no such thing.
    #[error("there is no {}", .0.display())]
    Absent(PathBuf),
    /// The kernel has it, and it may not be read.
    #[error("no permission to read {what}: {remedy}")]
    NoPermission {
        /// What.
        what: String,
        /// Who may.
        remedy: String,
    },
    /// The source is there, and has no such domain.
    #[error("{whole} has no {part}")]
    NoDomain {
        /// The source or package.
        whole: String,
        /// The domain.
        part: String,
    },
    /// The counter opens, and does not count.
    #[error(
        "dead counter: {what} opens, says {value}, and did not advance in {seconds:.1} s under load"
    )]
    Dead {
        /// Which.
        what: String,
        /// What it says, in its own unit.
        value: u64,
        /// How long it was watched.
        seconds: f64,
    },
    /// It counted when it was tried, and stood still in the measurement.
    #[error(
        "the counter did not advance in {seconds:.1} s of the measurement, though it did before"
    )]
    Stopped {
        /// How long it stood still.
        seconds: f64,
    },
    /// It counted backwards, and no wrap explains that: its driver was loaded again, or the host was suspended.
    #[error("the counter was reset in the measurement: from {from} to {to}")]
    Reset {
        /// Before.
        from: u64,
        /// After.
        to: u64,
    },
    /// It is not touched unless asked for.
    #[error("not tried: {0}")]
    NotTried(String),
    /// The library cannot be opened.
    #[error("{library} cannot be opened: {reason}")]
    NoLibrary {
        /// Its path or name.
        library: String,
        /// What the loader says.
        reason: String,
    },
    /// The library found is Penstock's own, which shows the pool's devices and not the node's.
    #[error("{library} is Penstock's own, and shows the pool's devices instead of this host's")]
    OwnLibrary {
        /// Its path or name.
        library: String,
    },
    /// A function of the library fails.
    #[error("{function}: {text} ({code})")]
    Library {
        /// Which function.
        function: &'static str,
        /// Its code.
        code: u32,
        /// The code in words.
        text: String,
    },
    /// The source is there and has no device.
    #[error("{0} has no devices")]
    NoDevice(&'static str),
    /// What is read is not what the kernel documents.
    #[error("{what} says {text:?}, which is no {expected}")]
    Malformed {
        /// Which file.
        what: String,
        /// What it says, at most [`TEXT_SHOWN_MAX`] bytes.
        text: String,
        /// What it should say.
        expected: &'static str,
    },
    /// Any other failure of the kernel.
    #[error("{what}: {text}")]
    Io {
        /// Which file or event.
        what: String,
        /// The error in words.
        text: String,
        /// Its number, or 0.
        errno: i32,
    },
    /// There are more than this library reads.
    #[error("only the first {0} are read")]
    TooMany(usize),
    /// Nothing was measured of it, because nothing was asked for.
    #[error("{0}")]
    NotMeasured(&'static str),
}

/// Of a malformed text this much is shown: a line of a terminal.
pub const TEXT_SHOWN_MAX: usize = 40;

impl Reason {
    /// A word for programs that read reports.
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

    /// What a failed access to `path` means.
    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Absent(path.to_path_buf()),
            io::ErrorKind::PermissionDenied => Self::NoPermission {
                what: path.display().to_string(),
                remedy: "root may, or whoever is given access to the file".to_owned(),
            },
            _ => Self::of_error(path.display().to_string(), error),
        }
    }

    /// Any failure.
    pub(crate) fn of_error(what: String, error: &io::Error) -> Self {
        Self::Io { what, text: error.to_string(), errno: error.raw_os_error().unwrap_or_default() }
    }

    /// A text that is not what it should be.
    pub(crate) fn malformed(what: &Path, text: &str, expected: &'static str) -> Self {
        let text = text.chars().take(TEXT_SHOWN_MAX).collect();
        Self::Malformed { what: what.display().to_string(), text, expected }
    }
}

/// For programs: the kind, and the text for people.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reason", 2)?;
        fields.serialize_field("kind", self.kind())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.end()
    }
}
