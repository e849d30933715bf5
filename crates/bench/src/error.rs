//! Why something was not measured.

use std::io;
use std::path::PathBuf;

/// Why something was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A part of the host that is needed is not there. What needs it is skipped, and the reason is shown.
    #[error("{0}")]
    Absent(String),
    /// A function of OpenCL failed.
    #[error("{function} fails with code {code}")]
    OpenCl {
        /// Which.
        function: &'static str,
        /// Its code.
        code: i32,
    },
    /// A function of CUDA failed.
    #[error("{function} fails with CUDA's code {code}")]
    Cuda {
        /// Which.
        function: &'static str,
        /// Its code.
        code: u32,
    },
    /// The device's compiler refused the benchmark's kernels.
    #[error("the device's compiler: {0}")]
    Build(String),
    /// A library cannot be opened, or is not what it should be.
    #[error("{}: {reason}", path.display())]
    Library {
        /// Which.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// MPI.
    #[error("MPI: {text} (code {code})")]
    Mpi {
        /// Its code.
        code: i32,
        /// The code in words.
        text: String,
    },
    /// A system call.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Something took longer than it ever should.
    #[error("{what} took longer than {seconds} s")]
    Late {
        /// What.
        what: String,
        /// Its limit.
        seconds: u64,
    },
    /// Bytes that arrived are not those that were sent. Such a figure is worth nothing.
    #[error(
        "{path}, {bytes} bytes: {count} of the checked words are wrong; the first is {found:#x} instead of {expected:#x}"
    )]
    Wrong {
        /// On which path.
        path: &'static str,
        /// Of messages of which size.
        bytes: u64,
        /// How many words are wrong.
        count: u64,
        /// What the first one is.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// A process that takes part has ended.
    #[error("{who} ended ({how}){}{said}", if said.is_empty() { "" } else { ": " })]
    Ended {
        /// Which.
        who: String,
        /// Its exit status.
        how: String,
        /// Its last words.
        said: String,
    },
    /// A wait of a kernel ended without what it waited for.
    #[error("a kernel on {path} waited in vain: {how}")]
    Wait {
        /// On which path.
        path: &'static str,
        /// What the verbs answered.
        how: String,
    },
    /// The pool.
    #[error("the pool: {0}")]
    Pool(#[from] penstock_client::Error),
    /// What another process of the benchmark said is not understood.
    #[error("{who} says what is not understood: {text}")]
    Language {
        /// Which.
        who: String,
        /// What it said.
        text: String,
    },
    /// Measuring energy.
    #[error(transparent)]
    Energy(#[from] penstock_energy::Error),
}

/// What most functions here give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: what was tried.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
