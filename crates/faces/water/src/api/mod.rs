//! The functions of `wtr.h` and `wtr_ext.h`. Each looks up its arguments, issues commands, and
//! turns errors into what C sees.
//!
//! A handle is a number that is never reused and never followed as an address. So a released or
//! invalid handle is recognised as such.

mod buffer;
mod devices;
mod event;
mod extra;
mod handles;
mod heap;
mod kernel;
mod partition;
mod report;
mod run;
mod variadic;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Error;
use report::fail;

/// The type that handles point to, as far as C knows.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// Runs the body of a function, and reports its error to the program. A panic, which would be a
/// defect of libwater, does not unwind into the program.
fn enter<T>(function: &str, failed: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    report::clear();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            fail(function, &error);
            failed
        }
        Err(_) => {
            fail(function, &Error::State("libwater has a defect: it panicked here"));
            failed
        }
    }
}

/// Does the same for a function that returns a code: 0, or the code of its error.
fn coded(function: &str, body: impl FnOnce() -> Result<(), Error>) -> std::ffi::c_int {
    let mut failed = crate::error::code::STATE;
    let is_done = enter(function, false, || {
        body().inspect_err(|error| failed = error.code())?;
        Ok(true)
    });
    if is_done { 0 } else { failed }
}
