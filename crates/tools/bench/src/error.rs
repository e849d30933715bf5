//! Reasons why a measurement failed or was left out.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A requirement is missing on this host. The measurement is skipped, and the reason is shown.
    #[error("{0}")]
    Absent(String),
    /// An OpenCL function failed.
    #[error("{function} fails with code {code}")]
    OpenCl { function: &'static str, code: i32 },
    /// A CUDA function failed.
    #[error("{function} fails with CUDA's code {code}")]
    Cuda { function: &'static str, code: u32 },
    /// The device's compiler rejected the benchmark's kernels.
    #[error("the device's compiler: {0}")]
    Build(String),
    /// A library cannot be opened, or is not the expected one.
    #[error("{}: {reason}", path.display())]
    Library { path: PathBuf, reason: String },
    #[error("MPI: {text} (code {code})")]
    Mpi { code: i32, text: String },
    #[error("{doing}: {source}")]
    Io {
        /// The operation that failed.
        doing: String,
        source: io::Error,
    },
    /// A step took longer than its limit.
    #[error("{what} took longer than {seconds} s")]
    Late { what: String, seconds: u64 },
    /// The bytes that arrived are not those that were sent, so the figure is worthless.
    #[error(
        "{path}, {bytes} bytes: {count} of the checked words are wrong; the first is {found:#x} instead \
         of {expected:#x}"
    )]
    Wrong {
        path: &'static str,
        /// Size of the messages.
        bytes: u64,
        /// Number of wrong words.
        count: u64,
        /// The first wrong word.
        found: u64,
        /// The word that was sent.
        expected: u64,
    },
    /// A process that takes part has ended.
    #[error("{who} ended ({how}){}{said}", if said.is_empty() { "" } else { ": " })]
    Ended {
        who: String,
        /// Exit status or signal.
        how: String,
        /// The end of its standard error.
        said: String,
    },
    /// A kernel's wait ended without success.
    #[error("a wait of a kernel on path {path} failed: {how}")]
    Wait {
        path: &'static str,
        /// Status that the verbs of `ggas.h` returned.
        how: String,
    },
    #[error("the pool: {0}")]
    Pool(#[from] penstock_client::Error),
    /// A message of another benchmark process is malformed.
    #[error("{who} sent a malformed message: {text}")]
    Language { who: String, text: String },
    #[error(transparent)]
    Energy(#[from] penstock_energy::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: makes the error of an operation that failed.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
