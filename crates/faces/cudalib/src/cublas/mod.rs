//! `libcublas.so`, and in `lt` `libcublasLt.so`. Names and forms of the functions are those of
//! `cublas_api.h` and `cublasLt.h`.

mod bias;
mod copies;
mod entry;
mod handle;
mod level1;
mod level2;
mod level3;
mod lt;
mod products;
mod settings;
mod task;

use std::ffi::c_void;

/// An address that a program gives: of the host or of a device.
type Ptr = *const c_void;

/// A code of cuBLAS that is not a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(i32);

impl Code {
    const NOT_INITIALIZED: Self = Self(1);
    const ALLOC_FAILED: Self = Self(3);
    const INVALID_VALUE: Self = Self(7);
    const EXECUTION_FAILED: Self = Self(13);
    const INTERNAL_ERROR: Self = Self(14);
    const NOT_SUPPORTED: Self = Self(15);
}

type Done<T = ()> = Result<T, Code>;
