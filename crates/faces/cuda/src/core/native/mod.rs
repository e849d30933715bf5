//! GPUs that a node drives through CUDA's own driver, see [`penstock_wire::cuda`]. The driver loads
//! modules as they are, chooses device addresses, and reports attributes. Everything else is as for
//! devices that run translated code.

pub(crate) mod arena;
pub(crate) mod attribute;
pub(crate) mod module;
pub(crate) mod shared;
pub(crate) mod variable;

/// A symbol that only our library has: it keeps a worker from taking our library for a driver.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name in a symbol table")]
pub static penstock_libcuda: u32 = 1;
