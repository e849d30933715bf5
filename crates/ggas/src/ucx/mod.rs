//! UCX as what carries the proxy's bytes between two members: over InfiniBand and whatever else it knows.
//!
//! * Members meet over their authenticated stream as ever. There they tell each other the addresses of their ends of UCX and a secret;
//!   each message carries the receiver's secret and a number that counts. What does not is a stranger's, and dropped.
//! * The stream stays. It is how the end of a member is noticed at once, and by it a member that leaves says how many messages it has sent.
//! * Bytes go as eager active messages of bounded size, over one lane, so they keep their order; the number would tell if not.
//! * Nothing is received that nobody waits for: UCX is given no turn while more than a few MiB have not been read.
//!
//! For processes of our own alone, never in a library that a program loads: UCX has a thread, and is as large as all of Penstock.

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

/// What has to be in the environment of a process before it begins, because UCX reads it when it is loaded: it takes no signals, replaces
/// no functions of the system's library, opens no socket for a debugger, and says nothing of variables that it does not know.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("UCX_ERROR_SIGNALS", ""),
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_MEM_EVENTS", "n"),
    ("UCX_MEM_MMAP_HOOK_MODE", "none"),
    ("UCX_MEM_CUDA_HOOK_MODE", "none"),
    ("UCX_VFS_ENABLE", "n"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// Settings of UCX that are ours: messages of one peer take one lane, else they could overtake each other.
const SETTINGS: &[(&CStr, &CStr)] = &[(c"MAX_EAGER_RAILS", c"1")];

/// Why UCX is not used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UcxError {
    /// It is not installed, or not as it should be.
    #[error("UCX's library {path} can not be used ({why}); install libucx0")]
    Absent {
        /// What was opened.
        path: String,
        /// What the system says.
        why: String,
    },
    /// It would take signals or replace functions.
    #[error(
        "{variable} has to be `{value}` before the process begins, else UCX changes more of it than it may"
    )]
    Environment {
        /// Which variable.
        variable: &'static str,
        /// What it has to be.
        value: &'static str,
    },
    /// It is another release.
    #[error("UCX {found} is too old; at least {wanted} is needed")]
    Release {
        /// What is here.
        found: String,
        /// What is needed.
        wanted: String,
    },
    /// It refused something.
    #[error("UCX: {doing}: {why}")]
    Call {
        /// What was tried.
        doing: &'static str,
        /// Its reason.
        why: String,
    },
}

/// UCX, ready for this process.
#[derive(Debug)]
pub(crate) struct Context {
    functions: Functions,
    handle: NonNull<c_void>,
}

// SAFETY: made with `mt_workers_shared`: its workers may be made and used by different threads at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Opens the library and makes it ready, if that was not done yet: heaps do it when they first need it. Takes some 10 ms.
///
/// # Errors
/// When the environment is not [`ENVIRONMENT`], the library is absent or too old, or finds no way to others.
pub fn open() -> Result<(), UcxError> {
    Context::get().map(|_| ())
}

impl Context {
    /// One is enough for all heaps; it stays.
    fn get() -> Result<Arc<Self>, UcxError> {
        static CONTEXT: OnceLock<Result<Arc<Context>, UcxError>> = OnceLock::new();
        CONTEXT.get_or_init(Self::open).clone()
    }

    fn open() -> Result<Arc<Self>, UcxError> {
        for &(variable, value) in ENVIRONMENT {
            if std::env::var_os(variable).is_none_or(|is| is != value) {
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
        // SAFETY: made by `init`; workers hold the context, so there are none.
        unsafe { (self.functions.cleanup)(self.handle.as_ptr()) };
    }
}

fn check_release(functions: &Functions) -> Result<(), UcxError> {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the pointers are to locals.
    unsafe { (functions.get_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    if (major, minor) >= (sys::API_MAJOR, sys::API_MINOR) && major == sys::API_MAJOR {
        return Ok(());
    }
    let wanted = format!("{}.{}", sys::API_MAJOR, sys::API_MINOR);
    Err(UcxError::Release { found: format!("{major}.{minor}.{patch}"), wanted })
}

fn init(functions: &Functions) -> Result<NonNull<c_void>, UcxError> {
    let mut config = null_mut();
    // SAFETY: null names mean UCX's own variables and no file; the pointer is to a local.
    let read = unsafe { (functions.config_read)(null(), null(), &raw mut config) };
    functions.check("reading its variables (UCX_TLS and others)", read)?;
    let mut set = sys::OK;
    for (name, value) in SETTINGS {
        if set == sys::OK {
            // SAFETY: the configuration was just read; both texts have an end.
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
        // SAFETY: the configuration is there, the other pointers are to locals.
        unsafe {
            (functions.init_version)(major, minor, &raw const params, config, &raw mut handle)
        }
    } else {
        set
    };
    // SAFETY: read above, and used no more.
    unsafe { (functions.config_release)(config) };
    functions.check("starting", made)?;
    NonNull::new(handle)
        .ok_or_else(|| UcxError::Call { doing: "starting", why: "nothing came of it".to_owned() })
}

/// What a heap has of UCX: nothing, unless it is wanted; then an engine from when the first member needs it.
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

    /// Those who have the engine keep it.
    pub(crate) fn take(&mut self) {
        *self = Self::default();
    }
}
