//! The properties of a device that decide the text of a translation.

#[cfg(doc)]
use super::control::CONTROL_SHADOW;
#[cfg(doc)]
use crate::ir::HEAP_WINDOW;

/// Properties of the device to translate for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Base address and size in bytes of each arena; there is at least one.
    pub arenas: Vec<(u64, u64)>,
    /// Whether kernels get a symmetric heap as one more argument behind the arenas. Addresses from
    /// [`HEAP_WINDOW`] on refer to it. [`Options::check`] does not apply to them.
    pub heap: bool,
    /// Whether each memory access is checked before it happens: for its alignment, and for whether
    /// its block of 256 bytes is allocated (bitmap at [`CONTROL_SHADOW`]). Requires exactly one
    /// arena. A thread that fails continues with zeros, and all threads leave their loops.
    pub check: bool,
    /// Whether the device has `double`.
    pub fp64: bool,
    /// Whether the device has 64-bit atomics.
    pub int64_atomics: bool,
    /// Whether the device has `half`. The translation does not need it: it computes halves in
    /// single precision.
    pub fp16: bool,
    /// Whether the device can round single-precision division and square roots correctly
    /// (`CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT`). Otherwise they are computed in double precision.
    pub exact_division: bool,
}
