//! The form of an entry point: what is around its body.

use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_cuda_sys::driver::{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult};

use super::CuResult;

/// Runs the body of an entry point. A panic, which would be a defect of ours, must not unwind into the program.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> CuResult) -> CUresult {
    // Whatever the body was doing is dropped or behind a lock that survives a panic.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

/// Writes the C functions around bodies that use `?`.
macro_rules! cu_entry {
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What CUDA asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::penstock_cuda_sys::driver::CUresult {
            $crate::edge::guard(move || -> $crate::edge::CuResult { $body })
        }
    )+};
}
pub(crate) use cu_entry;

/// As `cu_entry`, for functions that exist twice: with the legacy default stream and with the thread's own.
/// `fn one / other |default| (...)`: in the body `default` says which of the two was called.
macro_rules! cu_stream_entry {
    ($($(#[$attribute:meta])* fn $name:ident / $twin:ident |$default:ident| ($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What CUDA asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::penstock_cuda_sys::driver::CUresult {
            let $default = $crate::core::stream::Default::Legacy;
            $crate::edge::guard(move || -> $crate::edge::CuResult { _ = $default; $body })
        }

        $(#[$attribute])*
        /// With the thread's own default stream.
        ///
        /// # Safety
        /// What CUDA asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $twin($($parameter: $type),*) -> ::penstock_cuda_sys::driver::CUresult {
            let $default = $crate::core::stream::Default::PerThread;
            $crate::edge::guard(move || -> $crate::edge::CuResult { _ = $default; $body })
        }
    )+};
}
pub(crate) use cu_stream_entry;

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;

    #[test]
    fn codes_come_out_and_panics_do_not() {
        assert_eq!(guard(|| Ok(())), CUDA_SUCCESS);
        assert_eq!(guard(|| Err(CUDA_ERROR_INVALID_VALUE)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(guard(|| panic!("a defect")), CUDA_ERROR_UNKNOWN);
    }
}
