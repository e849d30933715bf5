//! The runtime's own state: contexts of threads, and what the program's binaries registered.

pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod exit;
pub(crate) mod graph;
pub(crate) mod image;
pub(crate) mod registry;
pub(crate) mod texture;

use penstock_cuda_sys::driver::{CU_STREAM_PER_THREAD, CUstream};

/// Replaces the null stream by the calling thread's own default stream.
pub(crate) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { std::ptr::without_provenance_mut(CU_STREAM_PER_THREAD) } else { stream }
}

/// Stores a result in the program's memory, unless the pointer is null.
///
/// # Safety
/// `place` is null or valid for a write.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller upholds the contract of this function. Programs need not align their
        // structures as Rust does.
        unsafe { place.write_unaligned(value) };
    }
}
