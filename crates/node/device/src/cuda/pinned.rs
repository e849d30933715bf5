//! Pins staged bytes in place, so that the GPU accesses them by itself.

use std::ffi::c_void;

use penstock_cuda_sys::driver::CU_MEMHOSTALLOC_PORTABLE;

use super::device::{self, Device};
use super::driver::check;

/// Keeps someone's memory pinned. It must be dropped before the memory is freed.
#[derive(Debug)]
struct Pinned {
    start: usize,
    device: &'static Device,
}

/// Pins whole pages until the result is dropped. Returns `None` if that fails or CUDA's driver is
/// not in use.
pub(super) fn pin(start: *mut u8, bytes: usize) -> Option<Box<dyn Send>> {
    let device = *device::all().iter().find(|device| device.is_used())?;
    device.enter().ok()?;
    // SAFETY: the memory is the caller's until the result is dropped.
    check(unsafe {
        (device.cuda().cuMemHostRegister)(start.cast(), bytes, CU_MEMHOSTALLOC_PORTABLE)
    })
    .ok()?;
    Some(Box::new(Pinned { start: start.expose_provenance(), device }))
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.start);
            // SAFETY: `pin` registered the range. If this fails, the pages merely stay pinned.
            let _ = check(unsafe { (self.device.cuda().cuMemHostUnregister)(start) });
        }
    }
}
