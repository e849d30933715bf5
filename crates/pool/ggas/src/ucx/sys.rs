//! The used part of UCX's C interface, declared by hand. The library is opened at run time.
//!
//! UCX reads only those fields of a structure that its field mask names. So structures may end
//! behind the last field used here, and may grow in later releases. A test compares all of this
//! with the header of the installed package.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use penstock_process::variable;

use super::error::UcxError;

/// Requested release of the interface; later libraries accept it.
pub(super) const API_MAJOR: c_uint = 1;
/// As above. The oldest supported Debian has 1.13.
pub(super) const API_MINOR: c_uint = 13;

/// Name of the library in the search path.
const LIBRARY: &str = "libucp.so.0";

/// Status: 0 is success, a negative number is an error. The header packs it into a byte.
pub(super) type Status = i8;
/// Request, error as a small negative number, or null if already done.
pub(super) type StatusPtr = *mut c_void;

pub(super) const OK: Status = 0;
pub(super) const IN_PROGRESS: Status = 1;
pub(super) const ERR_UNREACHABLE: Status = -6;
/// Pointers from this number to -1 are errors.
const ERR_LAST: isize = -100;

pub(super) const PARAM_FIELD_FEATURES: u64 = 1;
pub(super) const PARAM_FIELD_MT_WORKERS_SHARED: u64 = 1 << 5;
pub(super) const FEATURE_WAKEUP: u64 = 1 << 4;
pub(super) const FEATURE_AM: u64 = 1 << 6;
pub(super) const WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1;
pub(super) const WORKER_PARAM_FIELD_FLAGS: u64 = 1 << 5;
pub(super) const WORKER_FLAG_IGNORE_REQUEST_LEAK: u64 = 1;
pub(super) const THREAD_MODE_SERIALIZED: c_int = 1;
pub(super) const EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1;
pub(super) const EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
pub(super) const EP_PARAM_FIELD_ERR_HANDLER: u64 = 1 << 2;
pub(super) const ERR_HANDLING_MODE_NONE: c_int = 0;
pub(super) const ERR_HANDLING_MODE_PEER: c_int = 1;
pub(super) const EP_CLOSE_FLAG_FORCE: u32 = 1;
pub(super) const AM_HANDLER_PARAM_FIELD_ID: u64 = 1;
pub(super) const AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 1 << 1;
pub(super) const AM_HANDLER_PARAM_FIELD_CB: u64 = 1 << 2;
pub(super) const AM_HANDLER_PARAM_FIELD_ARG: u64 = 1 << 3;
pub(super) const AM_FLAG_WHOLE_MSG: u32 = 1;
pub(super) const AM_SEND_FLAG_EAGER: u32 = 1 << 1;
pub(super) const AM_RECV_ATTR_FLAG_DATA: u64 = 1 << 16;
pub(super) const AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;
pub(super) const OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;

/// Returns the error that a pointer encodes, if any.
pub(super) fn error_of(pointer: StatusPtr) -> Option<Status> {
    let number = pointer as isize;
    // Between -100 and -1, so it fits.
    (ERR_LAST..0).contains(&number).then(|| Status::try_from(number).unwrap_or(-1))
}

#[repr(C)]
pub(super) struct Params {
    pub(super) field_mask: u64,
    pub(super) features: u64,
    pub(super) request_size: usize,
    pub(super) request_init: *const c_void,
    pub(super) request_cleanup: *const c_void,
    pub(super) tag_sender_mask: u64,
    pub(super) mt_workers_shared: c_int,
}

#[repr(C)]
pub(super) struct WorkerParams {
    pub(super) field_mask: u64,
    pub(super) thread_mode: c_int,
    pub(super) cpu_mask: [u64; 16],
    pub(super) events: c_uint,
    pub(super) user_data: *mut c_void,
    pub(super) event_fd: c_int,
    pub(super) flags: u64,
}

#[repr(C)]
pub(super) struct EpParams {
    pub(super) field_mask: u64,
    pub(super) address: *const c_void,
    pub(super) err_mode: c_int,
    pub(super) err_cb: ErrorHandler,
    pub(super) err_arg: *mut c_void,
}

#[repr(C)]
pub(super) struct AmHandlerParam {
    pub(super) field_mask: u64,
    pub(super) id: c_uint,
    pub(super) flags: u32,
    pub(super) cb: AmHandler,
    pub(super) arg: *mut c_void,
}

#[repr(C)]
pub(super) struct AmRecvParam {
    pub(super) recv_attr: u64,
    pub(super) reply_ep: *mut c_void,
}

#[repr(C)]
pub(super) struct RequestParam {
    pub(super) op_attr_mask: u32,
    pub(super) flags: u32,
}

impl RequestParam {
    /// Makes parameters with only the flags of an operation.
    pub(super) fn flags(flags: u32) -> Self {
        Self { op_attr_mask: OP_ATTR_FIELD_FLAGS, flags }
    }
}

/// Called when an end point fails.
pub(super) type ErrorHandler = extern "C" fn(arg: *mut c_void, ep: *mut c_void, status: Status);
/// Called with each message that arrives.
pub(super) type AmHandler = extern "C" fn(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmRecvParam,
) -> Status;

/// Lists the functions for their table, their lookup, and the test that compares the header.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the library. It stays loaded, because it has a thread of its own.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: &libloading::Library, path: &str) -> Result<Self, UcxError> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of the header, which a test compares.
                        let found = unsafe { library.get($name) };
                        *found.map_err(|error| absent(path, &error))?
                    },)*
                })
            }
        }

        #[cfg(test)]
        pub(super) const NAMES: &[&[u8]] = &[$($name),*];
    };
}

functions! {
    get_version = b"ucp_get_version": fn(*mut c_uint, *mut c_uint, *mut c_uint);
    init_version = b"ucp_init_version": fn(c_uint, c_uint, *const Params, *const c_void, *mut *mut c_void) -> Status;
    cleanup = b"ucp_cleanup": fn(*mut c_void);
    config_read = b"ucp_config_read": fn(*const c_char, *const c_char, *mut *mut c_void) -> Status;
    config_modify = b"ucp_config_modify": fn(*mut c_void, *const c_char, *const c_char) -> Status;
    config_release = b"ucp_config_release": fn(*mut c_void);
    worker_create = b"ucp_worker_create": fn(*mut c_void, *const WorkerParams, *mut *mut c_void) -> Status;
    worker_destroy = b"ucp_worker_destroy": fn(*mut c_void);
    worker_get_address = b"ucp_worker_get_address": fn(*mut c_void, *mut *mut c_void, *mut usize) -> Status;
    worker_release_address = b"ucp_worker_release_address": fn(*mut c_void, *mut c_void);
    worker_progress = b"ucp_worker_progress": fn(*mut c_void) -> c_uint;
    worker_get_efd = b"ucp_worker_get_efd": fn(*mut c_void, *mut c_int) -> Status;
    worker_arm = b"ucp_worker_arm": fn(*mut c_void) -> Status;
    set_am_recv_handler = b"ucp_worker_set_am_recv_handler": fn(*mut c_void, *const AmHandlerParam) -> Status;
    ep_create = b"ucp_ep_create": fn(*mut c_void, *const EpParams, *mut *mut c_void) -> Status;
    ep_close = b"ucp_ep_close_nbx": fn(*mut c_void, *const RequestParam) -> StatusPtr;
    ep_print_info = b"ucp_ep_print_info": fn(*mut c_void, *mut libc::FILE);
    am_send = b"ucp_am_send_nbx": fn(*mut c_void, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParam) -> StatusPtr;
    am_data_release = b"ucp_am_data_release": fn(*mut c_void, *mut c_void);
    request_check_status = b"ucp_request_check_status": fn(*mut c_void) -> Status;
    request_free = b"ucp_request_free": fn(*mut c_void);
    status_string = b"ucs_status_string": fn(Status) -> *const c_char;
}

impl Functions {
    /// Opens the library and finds its functions.
    pub(super) fn open() -> Result<Self, UcxError> {
        let named = variable::LIBUCP.text();
        let path = named.as_deref().unwrap_or(LIBRARY);
        // SAFETY: the caller has checked the variables that keep UCX from hooking functions..
        let library =
            unsafe { libloading::Library::new(path) }.map_err(|error| absent(path, &error))?;
        let found = Self::find(&library, path);
        // Even after a failure: what the library has begun may go on.
        std::mem::forget(library);
        found
    }

    /// Returns the library's text for a status.
    pub(super) fn text(&self, status: Status) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.status_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: a null-terminated constant of the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Converts a status to a result.
    pub(super) fn check(&self, doing: &'static str, status: Status) -> Result<(), UcxError> {
        if status == OK { Ok(()) } else { Err(UcxError::Call { doing, why: self.text(status) }) }
    }
}

fn absent(path: &str, error: &libloading::Error) -> UcxError {
    let why =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    UcxError::Absent { path: path.to_owned(), why }
}
