//! Reasons why UCX is not used.

/// Reason why UCX is not used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UcxError {
    /// UCX is not installed, or not properly.
    #[error("UCX's library {path} can not be used ({why}); install libucx0")]
    Absent {
        /// Library that was opened.
        path: String,
        /// Reason that the system gives.
        why: String,
    },
    /// UCX would take signals or replace functions.
    #[error(
        "{variable} must be `{value}` before the process starts, otherwise UCX takes signals or \
         replaces functions"
    )]
    Environment { variable: &'static str, value: &'static str },
    /// The release of UCX is too old.
    #[error("UCX {found} is too old; at least {wanted} is needed")]
    Release { found: String, wanted: String },
    /// A call of UCX failed.
    #[error("UCX: {doing}: {why}")]
    Call {
        /// Operation that was attempted.
        doing: &'static str,
        /// Reason that UCX gives.
        why: String,
    },
}
