//! UCX as carrier of the proxy's bytes between two members, over InfiniBand and other networks.
//!
//! * Members meet over their authenticated stream. There they exchange a secret and the addresses
//!   of their ends of UCX. Each message carries the receiver's secret and a sequence number. A
//!   message without the secret is a stranger's and is dropped.
//! * The stream stays open. It reveals the end of a member at once, and a leaving member reports
//!   over it how many messages it has sent.
//! * Bytes are sent as eager active messages of bounded size over one lane, so they keep their
//!   order. The number would reveal a violation.
//! * UCX gets no turn while more than a few MiB are unread, so arrivals cannot pile up.
//!
//! Only our own processes use UCX, never a library that a program loads: UCX has a thread, and is
//! as large as all of Penstock.

mod arrivals;
mod carrier;
mod engine;
mod meet;
mod sys;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, OnceLock};

pub(crate) use self::engine::Engine;
pub(crate) use self::meet::{Met, meet};
use self::sys::{Functions, Params};

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

/// Reason why UCX is not used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UcxError {
    /// UCX is not installed, or not properly.
    #[error("UCX's library {path} can not be used ({why}); install libucx0")]
    Absent {
        /// Library that was opened.
        path: String,
        /// Reason that the system gives.
        why: String,
    },
    /// UCX would take signals or replace functions.
    #[error(
        "{variable} must be `{value}` before the process starts, otherwise UCX takes signals or replaces functions"
    )]
    Environment { variable: &'static str, value: &'static str },
    /// The release of UCX is too old.
    #[error("UCX {found} is too old; at least {wanted} is needed")]
    Release { found: String, wanted: String },
    /// A call of UCX failed.
    #[error("UCX: {doing}: {why}")]
    Call {
        /// Operation that was attempted.
        doing: &'static str,
        /// Reason that UCX gives.
        why: String,
    },
}

/// UCX, initialised for this process.
#[derive(Debug)]
pub(crate) struct Context {
    functions: Functions,
    handle: NonNull<c_void>,
}

// SAFETY: `mt_workers_shared` lets several threads make and use its workers at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Opens the library, once per process, in about 10 ms. Heaps do this when they first need it.
///
/// # Errors
/// Fails if the environment is not [`ENVIRONMENT`], or the library is absent, too old or unusable.
pub fn open() -> Result<(), UcxError> {
    Context::get().map(|_| ())
}

impl Context {
    /// Returns the only context, which serves all heaps and is never dropped.
    fn get() -> Result<Arc<Self>, UcxError> {
        static CONTEXT: OnceLock<Result<Arc<Context>, UcxError>> = OnceLock::new();
        CONTEXT.get_or_init(Self::open).clone()
    }

    fn open() -> Result<Arc<Self>, UcxError> {
        for &(variable, value) in ENVIRONMENT {
            if penstock_process::variable::value(variable).is_none_or(|is| is != value) {
                return Err(UcxError::Environment { variable, value });
            }
        }
        let functions = Functions::open()?;
        check_release(&functions)?;
        let handle = init(&functions)?;
        Ok(Arc::new(Self { functions, handle }))
    }
}

impl Drop for Context {
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

/// A heap's use of UCX, if it is wanted. The first member that needs the engine makes it.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    is_made: bool,
    engine: Option<Arc<Engine>>,
}

impl Offer {
    pub(crate) fn make(&mut self) {
        self.is_made = true;
    }

    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    pub(crate) fn engine(&mut self) -> Result<Arc<Engine>, UcxError> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Engine::new(&Context::get()?)?);
        self.engine = Some(engine.clone());
        Ok(engine)
    }

    /// Gives up the engine; those who hold it keep it.
    pub(crate) fn take(&mut self) {
        *self = Self::default();
    }
}
