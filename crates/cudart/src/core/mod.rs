//! What the runtime has of its own: which device and context a thread uses, and what the program's binaries registered.

pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod exit;
pub(crate) mod graph;
pub(crate) mod image;
pub(crate) mod registry;
pub(crate) mod texture;

use penstock_cuda_sys::driver::{CU_STREAM_PER_THREAD, CUstream};

/// The stream that a program means whose default stream is each thread's own.
pub(crate) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { std::ptr::without_provenance_mut(CU_STREAM_PER_THREAD) } else { stream }
}

/// Stores what a function gives, where the program wants it.
///
/// # Safety
/// `place` is null or a valid place for a value.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as the caller promises; programs need not align their structures as Rust does.
        unsafe { place.write_unaligned(value) };
    }
}
