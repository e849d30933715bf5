//! Kept errors, and names and descriptions of error codes.

use std::ffi::{c_char, c_int};

use penstock_cuda_sys::runtime_codes;

use crate::core::context::current_if_there;
use crate::edge::{last_error, returning, take_last_error};

/// Returns the last error of this thread, and forgets it unless it ended the context.
///
/// # Safety
/// Always safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetLastError() -> c_int {
    returning(runtime_codes::UNKNOWN, || take_last_error(current_if_there))
}

/// Returns the last error of this thread without forgetting it.
///
/// # Safety
/// Always safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaPeekAtLastError() -> c_int {
    returning(runtime_codes::UNKNOWN, || last_error(current_if_there))
}

/// Returns the name of an error.
///
/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    runtime_codes::name(error).unwrap_or(UNKNOWN_CODE).as_ptr()
}

/// Returns the description of an error.
///
/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    runtime_codes::text(error).unwrap_or(UNKNOWN_CODE).as_ptr()
}

/// Answer for a number that is no error code.
const UNKNOWN_CODE: &std::ffi::CStr = c"unrecognized error code";
