//! `libcufft.so`. Names and forms of the functions are those of `cufft.h`.

mod exec;
mod make;
mod plan;

use crate::edge::guard;

/// A code of cuFFT that is not a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(i32);

impl Code {
    const INVALID_PLAN: Self = Self(1);
    const ALLOC_FAILED: Self = Self(2);
    const INVALID_TYPE: Self = Self(3);
    const INVALID_VALUE: Self = Self(4);
    const INTERNAL_ERROR: Self = Self(5);
    const EXEC_FAILED: Self = Self(6);
    const SETUP_FAILED: Self = Self(7);
    const INVALID_SIZE: Self = Self(8);
    const NOT_SUPPORTED: Self = Self(16);
}

type Done<T = ()> = Result<T, Code>;

fn run(body: impl FnOnce() -> Done) -> i32 {
    guard(Code::INTERNAL_ERROR.0, || body().map_or_else(|code| code.0, |()| 0))
}
