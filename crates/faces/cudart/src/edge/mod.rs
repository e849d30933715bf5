//! What a C interface needs: the form of an entry point, kept errors, and the state of a thread.

mod entry;
mod error;
mod thread;
pub(crate) mod unserved;

pub(crate) use entry::{by_default, entry, guard, in_both_modes, on_stream, returning};
pub(crate) use error::{RtError, RtResult, forget_sticky, last_error, take_last_error};
pub(crate) use thread::{Configuration, Found, THREAD};

#[cfg(not(test))]
unsafe extern "C" {
    /// Major version, 12 or 13. Defined by the object that is linked into each library.
    safe static penstock_cudart_major: std::ffi::c_int;
}

/// Returns this library's major version, 12 or 13: the one its programs were compiled for.
#[cfg(not(test))]
pub(crate) fn major() -> std::ffi::c_int {
    penstock_cudart_major
}

#[cfg(test)]
pub(crate) fn major() -> std::ffi::c_int {
    13
}

/// Returns the runtime version that `cudaRuntimeGetVersion` reports.
pub(crate) fn version() -> std::ffi::c_int {
    version_of(major())
}

/// Returns the runtime version that the library of a major version reports.
#[must_use]
pub const fn version_of(major: std::ffi::c_int) -> std::ffi::c_int {
    // The lists of symbols were taken from these versions.
    if major == 12 { 12_090 } else { 13_000 }
}
