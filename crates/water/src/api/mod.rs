//! The functions of `wtr.h` and `wtr_ext.h`. Each looks its arguments up, and issues commands; here errors become what C sees.
//!
//! Handles are numbers that were never given before, so one that was released, or never was one, is found out and never followed.

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

/// What handles point to, as far as C knows.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// Runs the body of a function. Its error is told to the program; a panic, which would be a defect of ours, does not unwind into it.
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

/// As [`enter`], for a function that returns a code: 0, or that of its error.
fn coded(function: &str, body: impl FnOnce() -> Result<(), Error>) -> std::ffi::c_int {
    let mut failed = crate::error::code::STATE;
    let is_done = enter(function, false, || {
        body().inspect_err(|error| failed = error.code())?;
        Ok(true)
    });
    if is_done { 0 } else { failed }
}
