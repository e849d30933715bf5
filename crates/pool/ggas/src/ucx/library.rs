//! The library of UCX, initialised once in a process.

use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, OnceLock};

use penstock_process::variable;

use super::error::UcxError;
use super::sys::{self, Functions, Params};

/// Variables that a process's environment must have when the process begins, because UCX reads them
/// when it is loaded. With them UCX takes no signals, replaces no functions of the system's
/// library, opens no socket for a debugger, and does not report unknown variables.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("UCX_ERROR_SIGNALS", ""),
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_MEM_EVENTS", "n"),
    ("UCX_MEM_MMAP_HOOK_MODE", "none"),
    ("UCX_MEM_CUDA_HOOK_MODE", "none"),
    ("UCX_VFS_ENABLE", "n"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// Our settings of UCX: a peer's messages take one lane, so that none overtakes another.
const SETTINGS: &[(&CStr, &CStr)] = &[(c"MAX_EAGER_RAILS", c"1")];

/// UCX, initialised for this process.
#[derive(Debug)]
pub(crate) struct UcxContext {
    pub(super) functions: Functions,
    pub(super) handle: NonNull<c_void>,
}

// SAFETY: `mt_workers_shared` lets several threads make and use its workers at the same time.
unsafe impl Send for UcxContext {}
// SAFETY: as above.
unsafe impl Sync for UcxContext {}

/// Opens the library, once per process, in about 10 ms. Heaps do this when they first need it.
///
/// # Errors
/// Fails if the environment is not [`ENVIRONMENT`], or the library is absent, too old or unusable.
pub fn open() -> Result<(), UcxError> {
    UcxContext::get().map(|_| ())
}

impl UcxContext {
    /// Returns the only context, which serves all heaps and is never dropped.
    pub(super) fn get() -> Result<Arc<Self>, UcxError> {
        static CONTEXT: OnceLock<Result<Arc<UcxContext>, UcxError>> = OnceLock::new();
        CONTEXT.get_or_init(Self::open).clone()
    }

    fn open() -> Result<Arc<Self>, UcxError> {
        for &(name, value) in ENVIRONMENT {
            // These are UCX's variables, to which an empty value is a value.
            if variable::value_even_empty(name).is_none_or(|is| is != value) {
                return Err(UcxError::Environment { variable: name, value });
            }
        }
        let functions = Functions::open()?;
        check_release(&functions)?;
        let handle = init(&functions)?;
        Ok(Arc::new(Self { functions, handle }))
    }
}

impl Drop for UcxContext {
    fn drop(&mut self) {
        // SAFETY: made by `init`; workers hold the context, so none is left.
        unsafe { (self.functions.cleanup)(self.handle.as_ptr()) };
    }
}

fn check_release(functions: &Functions) -> Result<(), UcxError> {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the pointers refer to locals.
    unsafe { (functions.get_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    if (major, minor) >= (sys::API_MAJOR, sys::API_MINOR) && major == sys::API_MAJOR {
        return Ok(());
    }
    let wanted = format!("{}.{}", sys::API_MAJOR, sys::API_MINOR);
    Err(UcxError::Release { found: format!("{major}.{minor}.{patch}"), wanted })
}

fn init(functions: &Functions) -> Result<NonNull<c_void>, UcxError> {
    let mut config = null_mut();
    // SAFETY: null names stand for UCX's own variables and no file; the pointer refers to a local.
    let read = unsafe { (functions.config_read)(null(), null(), &raw mut config) };
    functions.check("reading its variables (UCX_TLS and others)", read)?;
    let mut set = sys::OK;
    for (name, value) in SETTINGS {
        if set == sys::OK {
            // SAFETY: the configuration was just read; both texts are null-terminated.
            set = unsafe { (functions.config_modify)(config, name.as_ptr(), value.as_ptr()) };
        }
    }
    let params = Params {
        field_mask: sys::PARAM_FIELD_FEATURES | sys::PARAM_FIELD_MT_WORKERS_SHARED,
        features: sys::FEATURE_AM | sys::FEATURE_WAKEUP,
        request_size: 0,
        request_init: null(),
        request_cleanup: null(),
        tag_sender_mask: 0,
        mt_workers_shared: 1,
    };
    let mut handle = null_mut();
    let made = if set == sys::OK {
        let (major, minor) = (sys::API_MAJOR, sys::API_MINOR);
        // SAFETY: the configuration exists, and the other pointers refer to locals.
        unsafe {
            (functions.init_version)(major, minor, &raw const params, config, &raw mut handle)
        }
    } else {
        set
    };
    // SAFETY: read above, and not used again.
    unsafe { (functions.config_release)(config) };
    functions.check("starting", made)?;
    NonNull::new(handle).ok_or_else(|| UcxError::Call {
        doing: "starting",
        why: "UCX returned no handle".to_owned(),
    })
}
