//! What every device claims to be, whatever it is made of.

/// Compute capability 7.5, the lowest that CUDA 13 compiles for. The translator supports its whole
/// instruction set.
pub(crate) const CAPABILITY: (i32, i32) = (7, 5);

/// Threads of a warp in PTX. The device's own number may differ.
pub(crate) const WARP: i32 = 32;

/// Shared memory that a block may use without opting in, in bytes, on all compute capabilities.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;

/// Shared memory in bytes that a block may use if it opts in
/// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`), as on capability 7.5.
pub(crate) const SHARED_BYTES_OPT_IN: u32 = 64 << 10;

/// The compute capability as one number: 75 for 7.5.
pub(crate) const CAPABILITY_NUMBER: i32 = CAPABILITY.0 * 10 + CAPABILITY.1;
