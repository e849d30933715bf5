//! Every function that is not served: it is there, says its name once, and returns `CUDA_ERROR_NOT_SUPPORTED`.

use penstock_cuda_sys::driver::{CUDA_ERROR_NOT_SUPPORTED, CUresult};

use crate::core::log;

fn refuse(name: &'static str) -> CUresult {
    log::not_served(name);
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! stubs {
    ($($name:ident)*) => {
        $(
            // What arguments there are does not matter to who looks at none.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, missing_docs, reason = "C's name; there is nothing to say of it")]
            pub extern "C" fn $name() -> CUresult {
                refuse(stringify!($name))
            }
        )*

        /// The functions that are not served, by name.
        pub(super) const REFUSED: &[(&str, extern "C" fn() -> CUresult)] = &[$((stringify!($name), $name),)*];
    };
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
