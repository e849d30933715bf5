//! Reports errors to the program: as the thread's last error, and through the handler.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

use penstock_process::Lock;

use crate::command::Fault;
use crate::error::Error;

/// The C type `wtr_error`.
#[repr(C)]
#[derive(Debug)]
pub struct CError {
    code: c_int,
    message: *const c_char,
    node: *const c_char,
    device: *const c_char,
    log: *const c_char,
}

#[derive(Debug)]
pub struct ReportedError {
    c: CError,
    _texts: [CString; 4],
}

// SAFETY: the addresses lead to the strings beside them, which never change.
unsafe impl Send for ReportedError {}
// SAFETY: as above.
unsafe impl Sync for ReportedError {}

/// The C type `wtr_error_handler`.
pub type Handler = unsafe extern "C" fn(*const CError, *mut c_void);

struct Handling {
    handler: Option<Handler>,
    user: *mut c_void,
}

// SAFETY: `wtr_ext.h` says that any thread may use this address.
unsafe impl Send for Handling {}

static HANDLING: Lock<Handling> = Lock::new(Handling { handler: None, user: std::ptr::null_mut() });

thread_local! {
    static LAST: RefCell<Option<ReportedError>> = const { RefCell::new(None) };
}

impl ReportedError {
    fn new(code: i32, message: &str, node: &str, device: &str, log: &str) -> Self {
        // For C a string ends at its first zero in any case.
        let c = |text: &str| {
            CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
        };
        let texts = [c(message), c(node), c(device), c(log)];
        let [message, node, device, log] = texts.each_ref().map(|text| text.as_ptr());
        Self { c: CError { code, message, node, device, log }, _texts: texts }
    }

    /// Returns the error of a failed command.
    pub fn of_fault(fault: &Fault) -> Self {
        Self::new(fault.code, &fault.to_string(), &fault.node, &fault.device, &fault.log)
    }

    /// Returns the error for C, which is valid as long as `self`.
    pub fn as_c(&self) -> *const CError {
        &raw const self.c
    }

    fn message(&self) -> String {
        self._texts.first().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

pub fn clear() {
    LAST.with_borrow_mut(|last| *last = None);
}

/// Returns the thread's last error, or null if there is none.
pub fn last() -> *const CError {
    LAST.with_borrow(|last| last.as_ref().map_or(std::ptr::null(), ReportedError::as_c))
}

/// Sets the handler; without one the program ends at an error.
pub fn set_handler(handler: Option<Handler>, user: *mut c_void) {
    *HANDLING.lock() = Handling { handler, user };
}

/// Reports that a call has failed. The failure of a command is only stored, because [`tell_fault`]
/// reports its root cause.
pub fn fail(function: &str, error: &Error) {
    let told = match error {
        Error::Command(fault) => ReportedError::of_fault(fault),
        _ => ReportedError::new(error.code(), &format!("{function}: {error}"), "", "", ""),
    };
    let is_told = matches!(error, Error::Command(_));
    if !is_told {
        tell(&told);
    }
    LAST.with_borrow_mut(|last| *last = Some(told));
}

/// Reports the root cause of failed commands. Without a handler the program ends: otherwise it
/// would go on with results that were never computed.
pub fn tell_fault(fault: &Fault) {
    tell(&ReportedError::of_fault(fault));
}

fn tell(told: &ReportedError) {
    let (handler, user) = {
        let handling = HANDLING.lock();
        (handling.handler, handling.user)
    };
    match handler {
        // SAFETY: the program set the handler for this call.
        Some(handler) => unsafe { handler(told.as_c(), user) },
        None => {
            eprintln!(
                "libwater: {}\nlibwater: no error handler is set (wtr_set_error_handler): aborting",
                told.message()
            );
            std::process::abort();
        }
    }
}
