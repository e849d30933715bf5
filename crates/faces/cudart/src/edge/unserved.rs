//! Functions that are exported but not served.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cuda_sys::runtime_codes as code;

use super::RtError;

/// Reports the first call of a function that is not served.
pub(crate) fn say_once(said: &AtomicBool, name: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        line(format_args!("{name} is not served"));
    }
}

/// Writes one line to standard error with a single write.
pub(crate) fn line(what: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let text = format!("penstock: {what}\n");
    // If there is no standard error, nothing can be done.
    _ = std::io::stderr().write_all(text.as_bytes());
}

/// Body of a function that is not served.
pub(crate) fn unserved(said: &AtomicBool, name: &str) -> c_int {
    say_once(said, name);
    RtError(code::NOT_SUPPORTED).keep()
}
