//! Handles, versions and modes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use penstock_cuda_sys::driver::CUstream;

use super::entry::run;
use super::handle::{Handle, set_mode};
use super::{Code, Done, Ptr};
use crate::edge::{store, version};

/// Defines functions of a handle.
macro_rules! of_handle {
    ($(fn $name:ident($handle:ident $(, $parameter:ident: $type:ty)*) $body:block)+) => {$(
        /// # Safety
        /// The program follows the rules of cuBLAS for the pointers that it passes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Ptr $(, $parameter: $type)*) -> c_int {
            run(|| {
                let $handle = Handle::of(handle)?;
                $body
            })
        }
    )+};
}

/// Stores an answer of a function.
pub(super) fn answer<T>(place: *mut T, value: T) -> Done {
    // SAFETY: the program promises that the place is null or writable.
    if unsafe { store(place, value) } { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

of_handle! {
    fn cublasGetVersion_v2(_handle, to: *mut c_int) {
        answer(to, version())
    }
    fn cublasSetStream_v2(handle, stream: CUstream) {
        handle.set_stream(stream);
        Ok(())
    }
    fn cublasGetStream_v2(handle, to: *mut CUstream) {
        answer(to, handle.stream())
    }
    fn cublasSetPointerMode_v2(handle, mode: c_int) {
        set_mode(&handle.pointer_mode, mode, 1)
    }
    fn cublasGetPointerMode_v2(handle, to: *mut c_int) {
        answer(to, handle.pointer_mode.load(Ordering::Relaxed))
    }
    fn cublasSetAtomicsMode(handle, mode: c_int) {
        set_mode(&handle.atomics_mode, mode, 1)
    }
    fn cublasGetAtomicsMode(handle, to: *mut c_int) {
        answer(to, handle.atomics_mode.load(Ordering::Relaxed))
    }
    fn cublasSetMathMode(handle, mode: c_int) {
        // The modes allow less precise products. All products here have their full precision.
        handle.math_mode.store(mode, Ordering::Relaxed);
        Ok(())
    }
    fn cublasGetMathMode(handle, to: *mut c_int) {
        answer(to, handle.math_mode.load(Ordering::Relaxed))
    }
    fn cublasSetSmCountTarget(handle, count: c_int) {
        if count < 0 {
            return Err(Code::INVALID_VALUE);
        }
        handle.multiprocessors.store(count, Ordering::Relaxed);
        Ok(())
    }
    fn cublasGetSmCountTarget(handle, to: *mut c_int) {
        answer(to, handle.multiprocessors.load(Ordering::Relaxed))
    }
    fn cublasSetWorkspace_v2(_handle, _workspace: *mut c_void, _bytes: usize) {
        // The libraries have their own memory.
        Ok(())
    }
}

/// # Safety
/// `to` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(to: *mut Ptr) -> c_int {
    run(|| {
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        answer(to, Handle::create()?)
    })
}

/// # Safety
/// Safe with any argument, because the handle is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: Ptr) -> c_int {
    run(|| Handle::destroy(handle))
}

/// # Safety
/// `to` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(property: c_int, to: *mut c_int) -> c_int {
    run(|| {
        let version = version();
        let value = match property {
            0 => version / 10_000,
            1 => version / 100 % 100,
            2 => version % 100,
            _ => return Err(Code::INVALID_VALUE),
        };
        answer(to, value)
    })
}

/// # Safety
/// Safe, because there are no arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetCudartVersion() -> usize {
    usize::try_from(version() / 100 * 10).unwrap_or(0)
}

/// The library writes no log.
///
/// # Safety
/// Safe with any argument, because no argument is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLoggerConfigure(
    _on: c_int,
    _to_output: c_int,
    _to_error: c_int,
    _file: *const c_char,
) -> c_int {
    0
}

const CODES: &[(c_int, &CStr, &CStr)] = &[
    (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
    (1, c"CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
    (3, c"CUBLAS_STATUS_ALLOC_FAILED", c"the resource allocation failed"),
    (7, c"CUBLAS_STATUS_INVALID_VALUE", c"an invalid value was used as an argument"),
    (8, c"CUBLAS_STATUS_ARCH_MISMATCH", c"an absent device architectural feature is required"),
    (11, c"CUBLAS_STATUS_MAPPING_ERROR", c"an access to GPU memory space failed"),
    (13, c"CUBLAS_STATUS_EXECUTION_FAILED", c"the GPU program failed to execute"),
    (14, c"CUBLAS_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
    (15, c"CUBLAS_STATUS_NOT_SUPPORTED", c"the functionality is not supported"),
    (16, c"CUBLAS_STATUS_LICENSE_ERROR", c"a license error was detected"),
];

/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStatusName(code: c_int) -> *const c_char {
    let found = CODES.iter().find(|(number, ..)| *number == code);
    found.map_or(c"unknown error code", |(_, name, _)| *name).as_ptr()
}

/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStatusString(code: c_int) -> *const c_char {
    let found = CODES.iter().find(|(number, ..)| *number == code);
    found.map_or(c"unknown error code", |(.., text)| *text).as_ptr()
}
