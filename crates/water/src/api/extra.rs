//! Errors, flushing and graphs of `wtr_ext.h`.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use super::report::{self, CError, Handler};
use super::{coded, enter, run, variadic};
use crate::record;

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

/// `wtr_dump_graph`: writes the graph of the commands so far, and that of the jobs beside it.
///
/// # Safety
/// `path` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_dump_graph(path: *const c_char) -> c_int {
    coded("wtr_dump_graph", || {
        let run = run::current()?;
        // SAFETY: the caller's promise.
        let path = unsafe { variadic::text(path, "the path") }?;
        record::dump(run.runtime(), Path::new(path))
    })
}
