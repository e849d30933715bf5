//! The error, flush and graph functions of `wtr_ext.h`.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use super::report::{self, CError, Handler};
use super::{coded, enter, run, variadic};
use crate::runtime::recording;

#[unsafe(no_mangle)]
pub extern "C" fn wtr_last_error() -> *const CError {
    report::last()
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_set_error_handler(handler: Option<Handler>, user: *mut c_void) {
    report::set_handler(handler, user);
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_flush() {
    enter("wtr_flush", (), || {
        let run = run::current()?;
        run.runtime().flush();
        run.tell_faults();
        Ok(())
    });
}

/// Writes the graph of the commands so far, and the graph of the jobs beside it.
///
/// # Safety
/// `path` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_dump_graph(path: *const c_char) -> c_int {
    coded("wtr_dump_graph", || {
        let run = run::current()?;
        // SAFETY: the caller guarantees it.
        let path = unsafe { variadic::text(path, "the path") }?;
        recording::dump(run.runtime(), Path::new(path))
    })
}
