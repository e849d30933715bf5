//! The driver, found at first use: the public interface of whatever `libcuda.so.1` there is.

mod functions;
mod library;

use std::sync::OnceLock;

use penstock_cuda_sys::driver::{CUDA_ERROR_NOT_SUPPORTED, CUresult};
use penstock_cuda_sys::runtime_codes as code;

pub(crate) use functions::Functions;

use crate::edge::{RtError, RtResult};

/// The driver, opened.
static OPENED: OnceLock<Option<&'static Functions>> = OnceLock::new();

/// The driver, opened and initialised.
static DRIVER: OnceLock<Result<&'static Functions, RtError>> = OnceLock::new();

/// The driver's functions.
///
/// # Errors
/// There is no driver, or it cannot be initialised (it has no device, for example). What it was at first, it stays.
#[inline]
pub(crate) fn driver() -> RtResult<&'static Functions> {
    *DRIVER.get_or_init(initialise)
}

/// The driver if it was used already.
pub(crate) fn driver_if_used() -> Option<&'static Functions> {
    DRIVER.get().and_then(|opened| opened.ok())
}

/// The driver for those of its functions that need no device.
pub(crate) fn driver_as_it_is() -> Option<&'static Functions> {
    // The driver stays to the end of the process: its functions are called from destructors, too.
    *OPENED.get_or_init(|| {
        library::open().map(|library| &*Box::leak(Box::new(Functions::of(library))))
    })
}

fn initialise() -> RtResult<&'static Functions> {
    let functions = driver_as_it_is().ok_or(RtError(code::INSUFFICIENT_DRIVER))?;
    // SAFETY: flags are zero, as the interface asks.
    unsafe { functions.cuInit(0) }.map_err(|error| match error.0 {
        // The stand-in of a toolkit to link with.
        code::STUB_LIBRARY => RtError(code::INSUFFICIENT_DRIVER),
        _ => error,
    })?;
    Ok(functions)
}

/// What a function gives that this driver does not have.
pub(crate) const LACKING: CUresult = CUDA_ERROR_NOT_SUPPORTED;
