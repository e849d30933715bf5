//! Errors.

use std::ffi::{c_char, c_int};

use penstock_cuda_sys::runtime_codes;

use crate::core::context::current_if_there;
use crate::edge::{last_error, returning, take_last_error};

/// The last error of this thread, which is forgotten unless its context is lost.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetLastError() -> c_int {
    returning(runtime_codes::UNKNOWN, || take_last_error(current_if_there))
}

/// The last error of this thread.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaPeekAtLastError() -> c_int {
    returning(runtime_codes::UNKNOWN, || last_error(current_if_there))
}

/// The name of an error.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    runtime_codes::name(error).unwrap_or(UNKNOWN_CODE).as_ptr()
}

/// What an error means.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    runtime_codes::text(error).unwrap_or(UNKNOWN_CODE).as_ptr()
}

/// Of a number that is no code.
const UNKNOWN_CODE: &std::ffi::CStr = c"unrecognized error code";
