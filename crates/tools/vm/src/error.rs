//! Why a guest could not be made or did not run.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    #[error("{}: cannot {doing} it: {source}", path.display())]
    File {
        path: PathBuf,
        /// Verb for the operation, such as "read".
        doing: &'static str,
        source: io::Error,
    },
    #[error("{}: {reason}", path.display())]
    Image {
        path: PathBuf,
        /// What is wrong with the kernel's folder or package, and what to do.
        reason: String,
    },
    #[error("the program {program} needs {library}, which is not on this host; install it")]
    Library {
        program: String,
        /// Name of the shared library.
        library: String,
    },
    #[error("{what} is not there; {remedy}")]
    Missing {
        /// Name of a program.
        what: String,
        remedy: String,
    },
    #[error("the initramfs would have more than {max_mib} MiB; leave files out (--file)")]
    TooLarge { max_mib: u64 },
    #[error("{what} failed: {how}")]
    Process {
        what: String,
        /// Its exit status, or what it wrote.
        how: String,
    },
    /// QEMU ended, or the guest was silent, before the program had ended.
    #[error("{what}{}", tail(console))]
    Guest {
        what: String,
        /// Last lines of the guest's console and of QEMU.
        console: String,
    },
    /// The guest broke the rules of [`crate::message`].
    #[error("the guest sent what no guest of this version sends: {0}")]
    Message(#[from] crate::message::MessageError),
    #[error(transparent)]
    Plan(#[from] crate::define::PlanError),
    #[error("the program's output cannot be written: {0}")]
    Output(io::Error),
}

impl VmError {
    /// For `map_err`: makes the error of the operation `doing` on the file `path`.
    pub fn file(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_path_buf(), doing, source }
    }
}

fn tail(console: &str) -> String {
    if console.is_empty() {
        return "; its console is empty".to_owned();
    }
    format!("; the last lines of its console:\n{console}")
}
