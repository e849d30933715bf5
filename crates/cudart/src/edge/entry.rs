//! The forms of an entry point: what is around its body.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_cuda_sys::runtime_codes as code;

use super::{RtError, RtResult};

/// Runs the body of an entry point. A panic, which would be a defect of ours, must not unwind into the program.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> RtResult) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => code::SUCCESS,
        Ok(Err(error)) => error.keep(),
        // Also kept; but keeping must not panic a second time.
        Err(_) => catch_unwind(|| RtError(code::UNKNOWN).keep()).unwrap_or(code::UNKNOWN),
    }
}

/// Like [`guard`], for functions that return something else than a code.
#[inline]
pub(crate) fn returning<T>(panicked: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panicked)
}

/// Writes C functions that return a code around bodies that use `?`.
///
/// The whole body may do what CUDA lets the function do with the program's pointers: these mostly go on to the driver unchanged,
/// whose function asks of them what the runtime's asks.
macro_rules! entry {
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What CUDA asks of the program: pointers lead to what the function's description says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::std::ffi::c_int {
            // SAFETY: what CUDA asks of the program, see above.
            #[allow(unused_unsafe, reason = "some only read what the library has")]
            $crate::edge::guard(move || unsafe { $body })
        }
    )+};
}
pub(crate) use entry;

/// Like [`entry!`], for functions whose last parameter is a stream: each comes with its second form, for which the default
/// stream is the calling thread's.
macro_rules! on_stream {
    ($($(#[$attribute:meta])* fn $name:ident, $ptsz:ident($($parameter:ident: $type:ty),* ; $stream:ident) $body:block)+) => {$(
        $crate::edge::entry! {
            $(#[$attribute])*
            fn $name($($parameter: $type,)* $stream: ::penstock_cuda_sys::driver::CUstream) $body
        }
        $crate::edge::entry! {
            $(#[$attribute])*
            ///
            /// For programs whose default stream is each thread's own.
            fn $ptsz($($parameter: $type,)* $stream: ::penstock_cuda_sys::driver::CUstream) {
                let $stream = $crate::core::per_thread($stream);
                $body
            }
        }
    )+};
}
pub(crate) use on_stream;

/// Like [`on_stream!`], for functions that always use the default stream, which the body gets under the name behind the
/// semicolon.
macro_rules! by_default {
    ($($(#[$attribute:meta])* fn $name:ident, $ptds:ident($($parameter:ident: $type:ty),* ; $stream:ident) $body:block)+) => {$(
        $crate::edge::entry! {
            $(#[$attribute])*
            fn $name($($parameter: $type),*) {
                let $stream: ::penstock_cuda_sys::driver::CUstream = ::std::ptr::null_mut();
                $body
            }
        }
        $crate::edge::entry! {
            $(#[$attribute])*
            ///
            /// For programs whose default stream is each thread's own.
            fn $ptds($($parameter: $type),*) {
                let $stream = $crate::core::per_thread(::std::ptr::null_mut());
                $body
            }
        }
    )+};
}
pub(crate) use by_default;
