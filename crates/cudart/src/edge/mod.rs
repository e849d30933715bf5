//! All that is particular to a C interface: the form of an entry point, errors and where they are kept, what a thread has.

mod entry;
mod error;
mod thread;
pub(crate) mod unserved;

pub(crate) use entry::{by_default, entry, guard, on_stream, returning};
pub(crate) use error::{RtError, RtResult, forget_sticky, last_error, take_last_error};
pub(crate) use thread::{Configuration, Found, THREAD};

#[cfg(not(test))]
unsafe extern "C" {
    /// Defined by the object that each library is linked with: 12 or 13.
    safe static penstock_cudart_major: std::ffi::c_int;
}

/// Which library this is, as its programs were compiled for it: 12 or 13.
#[cfg(not(test))]
pub(crate) fn major() -> std::ffi::c_int {
    penstock_cudart_major
}

#[cfg(test)]
pub(crate) fn major() -> std::ffi::c_int {
    13
}

/// The version of the runtime interface that is served: what `cudaRuntimeGetVersion` tells.
pub(crate) fn version() -> std::ffi::c_int {
    version_of(major())
}

/// The version of the runtime interface that the library of a major version serves, as `cudaRuntimeGetVersion` tells it.
#[must_use]
pub const fn version_of(major: std::ffi::c_int) -> std::ffi::c_int {
    // The lists of symbols were taken from these versions.
    if major == 12 { 12_090 } else { 13_000 }
}
