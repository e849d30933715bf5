//! Macros and functions that wrap the body of an entry point.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_cuda_sys::runtime_codes as code;

use super::{RtError, RtResult};

/// Runs the body of an entry point. A panic must not unwind into the program.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> RtResult) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => code::SUCCESS,
        Ok(Err(error)) => error.keep(),
        // Keeps this error too, without letting a second panic escape.
        Err(_) => catch_unwind(|| RtError(code::UNKNOWN).keep()).unwrap_or(code::UNKNOWN),
    }
}

/// Like [`guard`], for functions that do not return an error code.
#[inline]
pub(crate) fn returning<T>(panicked: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panicked)
}

/// Defines C functions that return an error code, from bodies that use `?`.
///
/// The whole body is unsafe: it may use the program's pointers as CUDA allows the function to. Most
/// bodies pass the pointers unchanged to the driver's function, which has the same requirements.
macro_rules! entry {
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// The program follows CUDA's rules for the pointers that it passes.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::std::ffi::c_int {
            // SAFETY: the caller follows CUDA's rules, see above.
            #[allow(unused_unsafe, reason = "some only read what the library has")]
            $crate::edge::guard(move || unsafe { $body })
        }
    )+};
}
pub(crate) use entry;

/// Like [`entry!`], for functions whose last parameter is a stream. Also defines the second form of
/// each function, in which a null stream means the calling thread's own default stream.
macro_rules! on_stream {
    ($($(#[$attribute:meta])* fn $name:ident, $ptsz:ident($($parameter:ident: $type:ty),* ; $stream:ident) $body:block)+) => {$(
        $crate::edge::entry! {
            $(#[$attribute])*
            fn $name($($parameter: $type,)* $stream: ::penstock_cuda_sys::driver::CUstream) $body
        }
        $crate::edge::entry! {
            $(#[$attribute])*
            ///
            /// For programs in which each thread has its own default stream.
            fn $ptsz($($parameter: $type,)* $stream: ::penstock_cuda_sys::driver::CUstream) {
                let $stream = $crate::core::per_thread($stream);
                $body
            }
        }
    )+};
}
pub(crate) use on_stream;

/// Like [`on_stream!`], for functions that always use the default stream. The body gets this stream
/// under the name behind the semicolon.
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
            /// For programs in which each thread has its own default stream.
            fn $ptds($($parameter: $type),*) {
                let $stream = $crate::core::per_thread(::std::ptr::null_mut());
                $body
            }
        }
    )+};
}
pub(crate) use by_default;

/// Defines copies that exist in a blocking form, for the default stream, and in a form that is
/// queued in a stream. The body gets the stream and the [`crate::core::copy::Mode`] under the names
/// behind the semicolon.
macro_rules! in_both_modes {
    ($($(#[$attribute:meta])* fn $name:ident, $ptds:ident, $later:ident, $ptsz:ident
        ($($parameter:ident: $type:ty),* ; $stream:ident, $mode:ident) $body:block)+) => {
        $crate::edge::by_default! {$(
            $(#[$attribute])*
            fn $name, $ptds($($parameter: $type),* ; $stream) {
                let $mode = $crate::core::copy::Mode::Blocking;
                $body
            }
        )+}
        $crate::edge::on_stream! {$(
            $(#[$attribute])*
            ///
            /// In the order of a stream.
            fn $later, $ptsz($($parameter: $type),* ; $stream) {
                let $mode = $crate::core::copy::Mode::Queued;
                $body
            }
        )+}
    };
}
pub(crate) use in_both_modes;
