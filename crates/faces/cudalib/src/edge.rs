//! What a C interface needs.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use penstock_wire::library::Kind;

#[cfg(not(test))]
unsafe extern "C" {
    /// Number of the version of the library, such as 120903. Defined by the object that is linked
    /// into each library.
    safe static penstock_cudalib_version: c_int;
}

/// Returns the version that the library reports.
#[cfg(not(test))]
pub(crate) fn version() -> c_int {
    penstock_cudalib_version
}

#[cfg(test)]
pub(crate) fn version() -> c_int {
    120_903
}

/// Runs the body of an entry point. A panic is a defect of ours and must not unwind into the
/// program.
#[inline]
pub(crate) fn guard(panicked: c_int, body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panicked)
}

/// Writes one line to standard error with a single write.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // If there is no standard error, nothing can be done.
    _ = std::io::stderr().write_all(format!("penstock: {what}\n").as_bytes());
}

/// Says the first time that a device does not serve a kind of calls.
pub(crate) fn say_unserved(said: &AtomicBool, kind: Kind) {
    if said.swap(true, Ordering::Relaxed) {
        return;
    }
    let (face, provider, packages) = (kind.face(), kind.provider(), kind.packages());
    say(format_args!(
        "{face} is not served on this device: the node of a GPU of CUDA's driver needs NVIDIA's \
         {face}, and a device that computes on its host's memory needs {provider} (on Debian: \
         apt-get install {packages})"
    ));
}

/// Reports the first call of a function that is not served. The functions that
/// `tools/cuda/link.sh` makes call it.
///
/// # Safety
/// `name` is a string, and `said` is a number that only this function changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_cudalib_unserved(name: *const c_char, said: *const AtomicI32) {
    // SAFETY: the caller promises the number.
    if unsafe { &*said }.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the caller promises a string.
        let name = unsafe { CStr::from_ptr(name) };
        _ = guard(0, || {
            say(format_args!("{} is not served", name.to_string_lossy()));
            0
        });
    }
}

/// Stores a result of a function. Returns false if the program gave no place for it.
///
/// # Safety
/// `place` is null or valid for a write.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) -> bool {
    if place.is_null() {
        return false;
    }
    // SAFETY: the caller promises that the place is writable.
    unsafe { place.write_unaligned(value) };
    true
}
