//! The form of an entry point: what is around its body.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry point. A panic, which would be a defect of ours, must not unwind into the program: it gives
/// `panicked`.
#[inline]
pub(crate) fn guard<T>(panicked: T, body: impl FnOnce() -> T) -> T {
    // Whatever the body was doing is dropped or behind a lock that survives a panic.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panicked)
}

/// Writes the C function around a body that uses `?`. The form of the result says what the function returns:
///
/// * `-> ClResult<()>`: the code;
/// * `-> ClResult<cl_mem>`: the handle, and the code through a last parameter `errcode_ret`; a pointer is `NULL` on failure;
/// * `-> T, or value`: plainly that, and `value` after a panic.
macro_rules! cl_entry {
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> ClResult<()> $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What OpenCL asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> ::penstock_cl_sys::cl_int {
            let body = move || -> $crate::edge::ClResult<()> { $body };
            $crate::edge::guard(::penstock_cl_sys::CL_OUT_OF_HOST_MEMORY, move || match body() {
                Ok(()) => ::penstock_cl_sys::CL_SUCCESS,
                Err(error) => error.0,
            })
        }
    )+};
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> ClResult<$made:ty> $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What OpenCL asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        pub unsafe extern "C" fn $name(
            $($parameter: $type,)*
            errcode_ret: *mut ::penstock_cl_sys::cl_int,
        ) -> $made {
            let body = move || -> $crate::edge::ClResult<$made> { $body };
            let panicked = Err($crate::edge::ClError(::penstock_cl_sys::CL_OUT_OF_HOST_MEMORY));
            let (made, code) = match $crate::edge::guard(panicked, body) {
                Ok(made) => (made, ::penstock_cl_sys::CL_SUCCESS),
                Err(error) => (::std::ptr::null_mut(), error.0),
            };
            // SAFETY: "errcode_ret will return an appropriate error code. If it is NULL, no error code is returned."
            unsafe { $crate::edge::store(errcode_ret, code) };
            made
        }
    )+};
    ($($(#[$attribute:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) -> $plain:ty, or $panicked:expr; $body:block)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// What OpenCL asks of the program: pointers are `NULL` or lead to what the function's description says.
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $plain {
            $crate::edge::guard($panicked, move || -> $plain { $body })
        }
    )+};
}
pub(crate) use cl_entry;

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use crate::edge::ClError;
    use penstock_cl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, cl_int, cl_mem};

    cl_entry! {
        /// A function.
        fn works(how: cl_int) -> ClResult<()> {
            assert!(how != 2, "a defect");
            if how == 1 { Err(ClError(CL_INVALID_VALUE)) } else { Ok(()) }
        }
    }
    cl_entry! {
        /// A creator.
        fn creates(how: cl_int) -> ClResult<cl_mem> {
            assert!(how != 2, "a defect");
            if how == 1 { Err(ClError(CL_INVALID_VALUE)) } else { Ok(std::ptr::dangling_mut()) }
        }
    }

    #[test]
    fn codes_come_out_and_panics_do_not() {
        for (how, code) in [(0, 0), (1, CL_INVALID_VALUE), (2, CL_OUT_OF_HOST_MEMORY)] {
            // SAFETY: no pointers.
            assert_eq!(unsafe { works(how) }, code);
            let mut got = 77;
            // SAFETY: a valid place for the code.
            let made = unsafe { creates(how, &raw mut got) };
            assert_eq!((made.is_null(), got), (code != 0, code));
            // SAFETY: the code is not asked for.
            assert_eq!(unsafe { creates(how, null_mut()) }.is_null(), code != 0);
        }
    }
}
