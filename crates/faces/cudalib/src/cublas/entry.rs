//! The form of the entry points. Each routine has functions for its types of elements, and each of
//! these has a form with 32-bit and one with 64-bit sizes.

use std::ffi::c_int;

use super::{Code, Done};
use crate::edge::guard;

pub(super) fn run(body: impl FnOnce() -> Done) -> c_int {
    guard(Code::INTERNAL_ERROR.0, || body().map_or_else(|code| code.0, |()| 0))
}

/// Passes a parameter to the body: sizes as 64-bit numbers, everything else as it is.
macro_rules! widen {
    (Int $value:ident) => {
        i64::from($value)
    };
    ($type:ident $value:ident) => {
        $value
    };
}
pub(super) use widen;

/// Defines one function.
macro_rules! one {
    (
        $body:ident $number:ident $is_wide:literal $name:ident
        ($($parameter:ident: $type:ident),*)
    ) => {
        /// # Safety
        /// The program follows the rules of cuBLAS for the pointers that it passes.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C's shape")]
        pub unsafe extern "C" fn $name(handle: Ptr $(, $parameter: $type)*) -> ::std::ffi::c_int {
            $crate::cublas::entry::run(|| {
                let number = ::penstock_wire::library::blas::Number::$number;
                let mut task = Task::of(handle, number, $is_wide)?;
                super::$body(&mut task $(, $crate::cublas::entry::widen!($type $parameter))*)
            })
        }
    };
}
pub(super) use one;

/// Defines the functions of routines. `body(parameters) { type: name with 32-bit sizes, name with
/// 64-bit sizes; }`. The body gets the handle and the type of the elements in a `Task`.
macro_rules! routines {
    ($($body:ident $parameters:tt { $($number:ident: $narrow:ident $(, $wide:ident)?;)+ })+) => {
        mod narrow {
            use super::*;
            type Int = ::std::ffi::c_int;
            $($($crate::cublas::entry::one! { $body $number false $narrow $parameters })+)+
        }
        mod wide {
            use super::*;
            type Int = i64;
            $($($($crate::cublas::entry::one! { $body $number true $wide $parameters })?)+)+
        }
    };
}
pub(super) use routines;
