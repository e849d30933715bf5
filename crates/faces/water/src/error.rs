//! Errors of calls, and their codes in C.

use penstock_dql as dql;

use crate::command::Fault;

/// Codes in addition to OpenCL's own, which are greater than -10000. `wtr_ext.h` has the same ones.
pub mod code {
    use penstock_cl_sys::*;

    /// A wrong argument: a null pointer, a released object, or an object of another device.
    pub const INVALID: i32 = -20001;
    /// A query is wrong, or selects no device where one is needed.
    pub const QUERY: i32 = -20002;
    /// The library is not initialised, or is initialised already.
    pub const STATE: i32 = -20003;
    /// A rank or a node is lost.
    pub const NODE_LOST: i32 = -20004;
    /// A file cannot be read.
    pub const FILE: i32 = -20005;
    /// There is no way to the other ranks: no MPI library, or one that does not start.
    pub const TRANSPORT: i32 = -20006;
    /// A heap was aborted by the program, or because a member is lost. Its waiting kernels have
    /// returned.
    pub const ABORTED: i32 = -20007;
    /// Kernels that wait for each other cannot all run at the same time.
    pub const RESIDENT: i32 = -20008;
    pub const OUT_OF_HOST_MEMORY: i32 = CL_OUT_OF_HOST_MEMORY;
    pub const WAIT_LIST_FAILED: i32 = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    pub const INVALID_MEM_OBJECT: i32 = CL_INVALID_MEM_OBJECT;
    pub const INVALID_KERNEL: i32 = CL_INVALID_KERNEL;
    pub const INVALID_VALUE: i32 = CL_INVALID_VALUE;
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument of the caller is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Query(#[from] dql::Error),
    #[error("no device answers this query: {0}")]
    NoDevice(String),
    /// The library is not initialised, or is initialised already.
    #[error("{0}")]
    State(&'static str),
    /// A file that the caller named cannot be read.
    #[error("cannot read {path}: {reason}")]
    File { path: String, reason: std::io::Error },
    /// There is no way to the other ranks.
    #[error("{0}")]
    Transport(String),
    /// Kernels that wait for each other cannot all run at the same time.
    #[error("{0}")]
    Resident(String),
    #[error("{0}")]
    Command(Box<Fault>),
}

impl Error {
    /// Returns the code that C sees.
    pub fn code(&self) -> i32 {
        match self {
            Self::Invalid(_) => code::INVALID,
            Self::Query(_) | Self::NoDevice(_) => code::QUERY,
            Self::State(_) => code::STATE,
            Self::File { .. } => code::FILE,
            Self::Transport(_) => code::TRANSPORT,
            Self::Resident(_) => code::RESIDENT,
            Self::Command(fault) => fault.code,
        }
    }
}
