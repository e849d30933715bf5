//! `libnvidia-ml.so.1`: shows the pool's devices, as CUDA programs see them, to tools and
//! frameworks that list and watch NVIDIA's devices.
//!
//! * `api`: the functions that are served. NVML's other functions exist too, return "Not
//!   Supported", and report their first call;
//! * `devices`: the pool behind the functions;
//! * `held`: the pool's lifetime.

mod api;
mod devices;
mod held;
mod structs;

pub use api::*;
use penstock_process::notice;

/// Values of NVML's `nvmlReturn_t`.
pub mod code {
    pub const SUCCESS: u32 = 0;
    pub const UNINITIALIZED: u32 = 1;
    pub const INVALID_ARGUMENT: u32 = 2;
    pub const NOT_SUPPORTED: u32 = 3;
    pub const NOT_FOUND: u32 = 6;
    pub const INSUFFICIENT_SIZE: u32 = 7;
    pub const DRIVER_NOT_LOADED: u32 = 9;
    pub const GPU_IS_LOST: u32 = 15;
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    pub const UNKNOWN: u32 = 999;
}

/// The functions that are not served.
mod unserved {
    include!(concat!(env!("OUT_DIR"), "/unserved.rs"));
}
pub use unserved::*;

/// Marks this library. A program that measures the host's own devices looks for this symbol, which
/// NVIDIA's library lacks.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_nvml() -> u32 {
    code::SUCCESS
}

/// Reports the first call of a function that is not served.
fn not_served(name: &'static str) -> u32 {
    notice::once(format_args!("{name} is not served"));
    code::NOT_SUPPORTED
}
