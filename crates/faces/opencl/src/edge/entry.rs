//! The frame of an entry point around its body.

use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_process::log;
use penstock_wire::Status;

/// Runs the body of the entry point `name`. Returns `panicked` if the body panics: a defect of ours
/// must not unwind into the program.
#[inline]
pub(crate) fn guard<T>(name: &str, panicked: T, body: impl FnOnce() -> T) -> T {
    log!(Trace, "{name}");
    // What the body used is dropped, or behind a lock that survives a panic.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panicked)
}

/// Reports the code of a call that has failed.
#[cold]
pub(crate) fn failed(name: &str, code: i32) -> i32 {
    log!(Debug, "{name} returns {}", Status(code));
    code
}

/// Defines the C function around a body that uses `?`. The type of the body determines the result:
///
/// * `-> ClResult<()>`: the function returns the code.
/// * `-> ClResult<cl_mem>`: the function returns the handle, or `NULL` on failure, and the code
///   through a last parameter `errcode_ret`.
/// * `-> T, or value`: the function returns the body's value, or `value` after a panic.
macro_rules! cl_entry {
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> ClResult<()> $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// Every pointer is `NULL` or as OpenCL's description of the function requires.
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::penstock_cl_sys::cl_int {
            let body = move || -> $crate::edge::ClResult<()> { $body };
            let name = stringify!($name);
            $crate::edge::guard(name, ::penstock_cl_sys::CL_OUT_OF_HOST_MEMORY, move || {
                match body() {
                    Ok(()) => ::penstock_cl_sys::CL_SUCCESS,
                    Err(error) => $crate::edge::failed(name, error.0),
                }
            })
        }
    )+};
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> ClResult<$made:ty> $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// Every pointer is `NULL` or as OpenCL's description of the function requires.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name(
            $($parameter: $type,)*
            errcode_ret: *mut ::penstock_cl_sys::cl_int,
        ) -> $made {
            let body = move || -> $crate::edge::ClResult<$made> { $body };
            let panicked = Err($crate::edge::ClError(::penstock_cl_sys::CL_OUT_OF_HOST_MEMORY));
            let (made, code) = match $crate::edge::guard(stringify!($name), panicked, body) {
                Ok(made) => (made, ::penstock_cl_sys::CL_SUCCESS),
                Err(error) => {
                    (::std::ptr::null_mut(), $crate::edge::failed(stringify!($name), error.0))
                }
            };
            // SAFETY: "errcode_ret will return an appropriate error code. If it is NULL, no error
            // code is returned."
            unsafe { $crate::edge::store(errcode_ret, code) };
            made
        }
    )+};
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> $plain:ty, or $panicked:expr; $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// Every pointer is `NULL` or as OpenCL's description of the function requires.
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $plain {
            $crate::edge::guard(stringify!($name), $panicked, move || -> $plain { $body })
        }
    )+};
}
pub(crate) use cl_entry;

/// Lists the functions of a module for [`crate::api::table`]: those with a slot in the dispatch
/// table of the ICD loader, and those that programs find only by name.
macro_rules! functions {
    (
        $(slots { $($slot:ident),* $(,)? })?
        $(named { $($named:ident),* $(,)? })?
    ) => {
        /// Puts the functions into their slots.
        #[allow(unused_variables, reason = "a module may have no function with a slot")]
        pub(super) const fn fill(table: &mut ::penstock_cl_sys::cl_icd_dispatch) {
            $($(table.$slot = Some($slot);)*)?
        }

        /// Names and addresses of the functions.
        pub(super) const FUNCTIONS: &[(&str, *const ())] = &[
            $($((stringify!($slot), $slot as *const ()),)*)?
            $($((stringify!($named), $named as *const ()),)*)?
        ];
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use crate::edge::ClError;
    use penstock_cl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, cl_int, cl_mem};

    cl_entry! {
        /// Fails as `how` says.
        fn works(how: cl_int) -> ClResult<()> {
            assert!(how != 2, "a defect");
            if how == 1 { Err(ClError(CL_INVALID_VALUE)) } else { Ok(()) }
        }
    }
    cl_entry! {
        /// Creates or fails as `how` says.
        fn creates(how: cl_int) -> ClResult<cl_mem> {
            assert!(how != 2, "a defect");
            if how == 1 { Err(ClError(CL_INVALID_VALUE)) } else { Ok(std::ptr::dangling_mut()) }
        }
    }

    #[test]
    fn codes_come_out_and_panics_do_not() {
        for (how, code) in [(0, 0), (1, CL_INVALID_VALUE), (2, CL_OUT_OF_HOST_MEMORY)] {
            // SAFETY: no pointers are passed.
            assert_eq!(unsafe { works(how) }, code);
            let mut got = 77;
            // SAFETY: the place for the code is valid.
            let made = unsafe { creates(how, &raw mut got) };
            assert_eq!((made.is_null(), got), (code != 0, code));
            // SAFETY: `NULL` means that no code is wanted.
            assert_eq!(unsafe { creates(how, null_mut()) }.is_null(), code != 0);
        }
    }
}
