//! The form of an entry point around its body.

use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_cuda_sys::driver::{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult};
use penstock_process::log;

use super::error::CuResult;

/// The default stream that a null handle stands for. The two variants of each function that takes
/// a stream differ only in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    /// The legacy default stream of the context. All blocking streams synchronise with it.
    Legacy,
    /// The default stream of the calling thread.
    PerThread,
}

/// Runs the body of the entry point `name`. A panic is a defect of ours and must not unwind into
/// the program.
#[inline]
pub(crate) fn guard(name: &str, body: impl FnOnce() -> CuResult) -> CUresult {
    log!(Trace, "{name}");
    // The body owns its state, or keeps it behind locks that survive a panic.
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    };
    log!(
        Debug,
        "{name} returns {}",
        code.entry().map_or("an unknown code".into(), |known| known.name.to_string_lossy())
    );
    code
}

/// Defines C functions whose bodies can use `?`. `fn one, other(...)` defines two functions
/// that do the same.
macro_rules! cu_entry {
    () => {};
    ($(#[$attribute:meta])* fn $name:ident, $same:ident($($parameter:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::edge::cu_entry! { $(#[$attribute])* fn $name($($parameter: $type),*) $body }
        $crate::edge::cu_entry! {
            #[doc = concat!("Does the same as `", stringify!($name), "`.")]
            fn $same($($parameter: $type),*) $body
        }
        $crate::edge::cu_entry! { $($rest)* }
    };
    ($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$attribute])*
        ///
        /// # Safety
        /// Pointers must be `NULL` or lead to what CUDA's description of the function demands.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::penstock_cuda_sys::driver::CUresult {
            $crate::edge::guard(stringify!($name), move || -> $crate::edge::CuResult { $body })
        }
        $crate::edge::cu_entry! { $($rest)* }
    };
}
pub(crate) use cu_entry;

/// As `cu_entry`, for functions with two variants: with the legacy default stream and with the
/// thread's own. `fn one / other |default| (...)`: in the body `default` tells which variant was
/// called.
macro_rules! cu_stream_entry {
    ($($(#[$attribute:meta])* fn $name:ident / $twin:ident |$default:ident| ($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {
        $crate::edge::cu_entry! {$(
            $(#[$attribute])*
            fn $name($($parameter: $type),*) {
                let $default = $crate::edge::DefaultStream::Legacy;
                _ = $default;
                $body
            }
            $(#[$attribute])*
            /// Variant with the thread's own default stream.
            fn $twin($($parameter: $type),*) {
                let $default = $crate::edge::DefaultStream::PerThread;
                _ = $default;
                $body
            }
        )+}
    };
}
pub(crate) use cu_stream_entry;

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;

    #[test]
    fn codes_come_out_and_panics_do_not() {
        assert_eq!(guard("cuA", || Ok(())), CUDA_SUCCESS);
        assert_eq!(guard("cuA", || Err(CUDA_ERROR_INVALID_VALUE)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(guard("cuA", || panic!("a defect")), CUDA_ERROR_UNKNOWN);
    }
}
