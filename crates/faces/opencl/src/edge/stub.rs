//! Stubs for slots of the dispatch table without a function: an empty slot would crash programs.

use std::ffi::c_void;

use penstock_cl_sys::{CL_INVALID_OPERATION, cl_int};

use super::memory::store;

/// Type of function pointer with a stub that fails with `CL_INVALID_OPERATION`.
pub trait Stub {
    /// Stub of this type.
    const REFUSE: Self;
}

macro_rules! stubs {
    ($([$($parameter:ident)*])*) => {$(
        impl<$($parameter),*> Stub for Option<unsafe extern "C" fn($($parameter),*) -> cl_int> {
            const REFUSE: Self = {
                unsafe extern "C" fn refuse<$($parameter),*>($(_: $parameter),*) -> cl_int {
                    CL_INVALID_OPERATION
                }
                Some(refuse::<$($parameter),*>)
            };
        }
        impl<$($parameter,)* Made> Stub for Option<unsafe extern "C" fn($($parameter,)* *mut cl_int) -> *mut Made> {
            const REFUSE: Self = {
                #[allow(clippy::too_many_arguments, reason = "C's shape")]
                unsafe extern "C" fn refuse<$($parameter,)* Made>($(_: $parameter,)* code: *mut cl_int) -> *mut Made {
                    // SAFETY: "errcode_ret ... If it is NULL, no error code is returned."
                    unsafe { store(code, CL_INVALID_OPERATION) };
                    std::ptr::null_mut()
                }
                Some(refuse::<$($parameter,)* Made>)
            };
        }
    )*};
}
stubs! {
    [] [A] [A B] [A B C] [A B C D] [A B C D E] [A B C D E F] [A B C D E F G] [A B C D E F G H] [A B C D E F G H I]
    [A B C D E F G H I J] [A B C D E F G H I J K] [A B C D E F G H I J K L] [A B C D E F G H I J K L M]
    [A B C D E F G H I J K L M N]
}

/// The slots of Direct3D and DX9, whose functions have no type on this system.
impl Stub for *mut c_void {
    const REFUSE: Self = {
        unsafe extern "C" fn refuse() -> cl_int {
            CL_INVALID_OPERATION
        }
        refuse as *const () as *mut c_void
    };
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use penstock_cl_sys::{cl_api_clCreateFromGLBuffer, cl_api_clEnqueueAcquireGLObjects};

    #[test]
    fn stubs_refuse() {
        let mut code = 0;
        let create = cl_api_clCreateFromGLBuffer::REFUSE.unwrap();
        // SAFETY: a stub accesses only the place for the code.
        assert!(unsafe { create(null_mut(), 0, 0, &raw mut code) }.is_null());
        assert_eq!(code, CL_INVALID_OPERATION);
        let acquire = cl_api_clEnqueueAcquireGLObjects::REFUSE.unwrap();
        // SAFETY: a stub accesses nothing.
        let code = unsafe { acquire(null_mut(), 0, null_mut(), 0, null_mut(), null_mut()) };
        assert_eq!(code, CL_INVALID_OPERATION);
    }
}
