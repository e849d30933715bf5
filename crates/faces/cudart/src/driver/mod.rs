//! The driver, opened at first use: the public interface of the `libcuda.so.1` that is found.

mod functions;
mod library;

use std::sync::OnceLock;

use penstock_cuda_sys::driver::{CUDA_ERROR_NOT_SUPPORTED, CUresult};
use penstock_cuda_sys::runtime_codes as code;

pub(crate) use functions::Functions;

use crate::edge::{RtError, RtResult};

/// The driver's functions. The driver may not be initialised.
static OPENED: OnceLock<Option<&'static Functions>> = OnceLock::new();

/// The driver's functions after initialisation.
static DRIVER: OnceLock<Result<&'static Functions, RtError>> = OnceLock::new();

/// Returns the functions of the initialised driver.
///
/// # Errors
/// There is no driver, or it cannot be initialised, for example because it has no device. The
/// result of the first call is final.
#[inline]
pub(crate) fn driver() -> RtResult<&'static Functions> {
    *DRIVER.get_or_init(initialise)
}

/// Returns the driver if it was initialised before.
pub(crate) fn driver_if_used() -> Option<&'static Functions> {
    DRIVER.get().and_then(|opened| opened.ok())
}

/// Returns the driver without initialising it, for functions that need no device.
pub(crate) fn driver_as_it_is() -> Option<&'static Functions> {
    // The driver is never closed, because destructors call its functions, too.
    *OPENED.get_or_init(|| {
        library::open().and_then(Functions::of).map(|functions| &*Box::leak(Box::new(functions)))
    })
}

fn initialise() -> RtResult<&'static Functions> {
    let functions = driver_as_it_is().ok_or(RtError(code::INSUFFICIENT_DRIVER))?;
    // SAFETY: the flags are zero, as the interface requires.
    unsafe { functions.cuInit(0) }.map_err(|error| match error.0 {
        // The library that toolkits provide only for linking.
        code::STUB_LIBRARY => RtError(code::INSUFFICIENT_DRIVER),
        _ => error,
    })?;
    Ok(functions)
}

/// Result of calling a function that this driver does not have.
pub(crate) const LACKING: CUresult = CUDA_ERROR_NOT_SUPPORTED;
