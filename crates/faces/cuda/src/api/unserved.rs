//! Stubs of all functions that are not served. A stub prints its name once and returns
//! `CUDA_ERROR_NOT_SUPPORTED`.

use penstock_cuda_sys::driver::{CUDA_ERROR_NOT_SUPPORTED, CUresult};
use penstock_process::notice;

fn refuse(name: &'static str) -> CUresult {
    notice::once(format_args!("{name} is not served"));
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! stubs {
    ($($name:ident)*) => {
        $(
            // C allows a call with arguments that the function ignores.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "C's name; the stub needs no description")]
            pub extern "C" fn $name() -> CUresult {
                refuse(stringify!($name))
            }
        )*

        /// The functions that are not served: name and stub.
        pub(super) const REFUSED: &[(&str, extern "C" fn() -> CUresult)] = &[$((stringify!($name), $name),)*];
    };
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
