//! Functions that are exported and not served.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cuda_sys::runtime_codes as code;

use super::RtError;

/// Says once that a function is not served.
pub(crate) fn say_once(said: &AtomicBool, name: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        line(format_args!("{name} is not served"));
    }
}

/// One line on standard error, in one piece.
pub(crate) fn line(what: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let text = format!("penstock: {what}\n");
    // Nothing can be done where there is no standard error.
    _ = std::io::stderr().write_all(text.as_bytes());
}

/// The body of a function that is not served.
pub(crate) fn unserved(said: &AtomicBool, name: &str) -> c_int {
    say_once(said, name);
    RtError(code::NOT_SUPPORTED).keep()
}
