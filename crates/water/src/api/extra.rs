//! Errors, flushing and graphs of `wtr_ext.h`.

use std::ffi::c_void;

use super::report::{self, CError, Handler};
use super::{enter, run};

/// `wtr_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_last_error() -> *const CError {
    report::last()
}

/// `wtr_set_error_handler`.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_set_error_handler(handler: Option<Handler>, user: *mut c_void) {
    report::set_handler(handler, user);
}

/// `wtr_flush`.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_flush() {
    enter("wtr_flush", (), || {
        let run = run::current()?;
        run.runtime().flush();
        run.tell_faults();
        Ok(())
    });
}
