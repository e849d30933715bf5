//! A device's window: addresses of this process that are reserved for a device, and under which the
//! program sees the device's memory. The program may access only the parts that were opened, so
//! that it faults on all other memory of the device, as it would with a GPU.
//!
//! Nothing is copied. The device computes on pages of this host, which this process has mapped
//! elsewhere as well, so all of these addresses lead to the same pages.

use std::ptr::NonNull;

use penstock_cuda_sys::driver::CUDA_ERROR_OUT_OF_MEMORY;
use rustix::mm::{Advice, MprotectFlags, MremapFlags, madvise, mprotect, mremap_fixed};

use super::error::CuResult;

/// The unit of access rights.
const PAGE_BYTES: u64 = 4096;

/// From this size on, old content is cleared by returning its pages to the system.
const DISCARD_BYTES_MIN: u64 = 256 << 10;

/// Maps the `size` bytes at `content`, which this process shares with a worker, also at `base`,
/// which is reserved for them. Nobody may access them there yet. Returns false if the system
/// cannot.
pub(crate) fn join(base: u64, size: u64, content: NonNull<u8>) -> bool {
    let (Ok(at), Ok(size)) = (usize::try_from(base), usize::try_from(size)) else { return false };
    let at = std::ptr::without_provenance_mut(at);
    // "If the value of old_size is zero, and old_address refers to a shareable mapping, then
    // mremap() will create a new mapping of the same pages."
    // SAFETY: this process has reserved the addresses at `at` for this device, so no memory of the
    // program is replaced. The mapping at `content` stays as it is.
    unsafe { mremap_fixed(content.as_ptr().cast(), 0, size, MremapFlags::MAYMOVE, at) }
        // SAFETY: the pages are the new ones, and nobody uses them yet.
        .and_then(|at| unsafe { mprotect(at, size, MprotectFlags::empty()) })
        .is_ok()
}

/// Lets the program access `size` bytes of joined pages, and the rest of these pages.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` if the process has too many ranges of different rights.
pub(crate) fn open(start: u64, size: u64) -> CuResult {
    let first = start / PAGE_BYTES * PAGE_BYTES;
    allow(first, start + size, MprotectFlags::READ | MprotectFlags::WRITE)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// Ends the program's access to the pages that lie completely within these bytes.
pub(crate) fn close(start: u64, size: u64) {
    let (first, end) =
        (start.next_multiple_of(PAGE_BYTES), (start + size) / PAGE_BYTES * PAGE_BYTES);
    if first < end {
        // Pages that stay open harm no correct program.
        _ = allow(first, end, MprotectFlags::empty());
    }
}

fn allow(first: u64, end: u64, rights: MprotectFlags) -> Option<()> {
    let (start, size) = (usize::try_from(first).ok()?, usize::try_from(end - first).ok()?);
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages are in the window of a device, where only the program accesses memory, and
    // only what it has allocated.
    unsafe { mprotect(start, size, rights) }.ok()
}

/// Fills opened bytes with zeros. Nobody uses them yet.
pub(crate) fn clear(start: u64, size: u64) {
    let (first, end) =
        (start.next_multiple_of(PAGE_BYTES), (start + size) / PAGE_BYTES * PAGE_BYTES);
    if size < DISCARD_BYTES_MIN || !discard(first, end - first) {
        zero(start, size);
        return;
    }
    zero(start, first - start);
    zero(end, start + size - end);
}

fn discard(start: u64, size: u64) -> bool {
    let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(size)) else {
        return false;
    };
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the caller of `clear` has the pages for itself.
    unsafe { madvise(start, size, Advice::LinuxRemove) }.is_ok()
}

fn zero(start: u64, size: u64) {
    let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(size)) else { return };
    let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the caller of `clear` has opened the bytes and has them for itself.
    unsafe { start.write_bytes(0, size) };
}
