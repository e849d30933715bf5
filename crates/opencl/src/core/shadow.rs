//! Host memory of a memory object: what mapped pointers point into. It stays at its address until the object is gone,
//! because programs go on using mapped pointers after unmapping, as staging memory of their own.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, ProtFlags};

use crate::edge::{ClError, ClResult, require};
use penstock_cl_sys::*;

/// Addresses that shared virtual memory is put at, so that the same ones are likely to be free in another process: far
/// from where Linux puts programs, heaps (0x55.., 0x56..) and libraries (0x7f..).
const SVM_BASES: std::ops::Range<usize> = 0x1000_0000_0000..0x4000_0000_0000;

/// Pages of zeros of our own, given back when dropped. Pages that are never touched cost nothing.
#[derive(Debug)]
pub(crate) struct Pages {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: The pages belong to this value alone; whoever writes to them through the raw address must synchronise, as the
// specification demands of the program.
unsafe impl Send for Pages {}
// SAFETY: As above; nothing here writes through a shared reference.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `length` bytes anywhere.
    ///
    /// # Errors
    /// `CL_MAP_FAILURE` where the system has no such memory.
    pub(crate) fn anywhere(length: usize) -> ClResult<Self> {
        Self::at(ptr::null_mut(), length, MapFlags::PRIVATE | MapFlags::NORESERVE)
            .ok_or(ClError(CL_MAP_FAILURE))
    }

    /// At least `length` bytes at an address that is likely to be free in other processes too, with this alignment.
    /// Each `attempt` tries another address.
    pub(crate) fn for_svm(length: usize, alignment: usize, attempt: usize) -> Option<Self> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        const STEP: usize = 2 << 20;
        let alignment = alignment.max(STEP);
        let room = length.checked_next_multiple_of(STEP)?.checked_add(alignment)?;
        // Processes of one program start at different places, so that workers of several clients do not matter either.
        let spread = (std::process::id() as usize % 1024) << 34;
        let offset = NEXT.fetch_add(room + attempt * STEP, Ordering::Relaxed) + spread;
        let address = SVM_BASES.start.checked_add(offset)?.checked_next_multiple_of(alignment)?;
        let end = address.checked_add(length)?;
        if end > SVM_BASES.end {
            return None;
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        Self::at(ptr::without_provenance_mut(address), length, flags)
    }

    fn at(address: *mut c_void, length: usize, flags: MapFlags) -> Option<Self> {
        let length = length.max(1).checked_next_multiple_of(rustix::param::page_size())?;
        // SAFETY: A new anonymous mapping, which replaces no other one: without FIXED the address is a hint, and with
        // FIXED_NOREPLACE a taken address is an error.
        let mapped = unsafe {
            mm::mmap_anonymous(address, length, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let pages = Self { address: NonNull::new(mapped.ok()?)?, length };
        // Kernels before 4.17 take FIXED_NOREPLACE for a hint.
        (address.is_null() || address == pages.address.as_ptr()).then_some(pages)
    }

    /// The first byte.
    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: The mapping was made by `at` and is given back once; nobody may use pointers into a memory object that
        // has been released.
        _ = unsafe { mm::munmap(self.address.as_ptr(), self.length) };
    }
}

/// The bytes of the program from which something is written.
///
/// # Safety
/// `length` bytes at `address` must be readable until the slice is gone, and nobody may write to them meanwhile.
pub(crate) unsafe fn host_bytes<'a>(address: *const c_void, length: usize) -> ClResult<&'a [u8]> {
    require(!address.is_null() && isize::try_from(length).is_ok(), CL_INVALID_VALUE)?;
    // SAFETY: Promised by the caller; no null, and no longer than a slice may be.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_aligned() {
        let pages = Pages::anywhere(5000).unwrap();
        assert_eq!(pages.address().addr() % rustix::param::page_size(), 0);
        // SAFETY: The mapping has 5000 bytes and nobody writes.
        let bytes = unsafe { host_bytes(pages.address().cast(), 5000) }.unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn shared_virtual_memory_is_apart() {
        let first = Pages::for_svm(4096, 128, 0).unwrap();
        let second = Pages::for_svm(10 << 20, 4 << 20, 0).unwrap();
        assert!(SVM_BASES.contains(&first.address().addr()));
        assert_eq!(second.address().addr() % (4 << 20), 0);
        assert_ne!(first.address(), second.address());
    }

    #[test]
    fn too_much_is_refused() {
        assert!(Pages::anywhere(usize::MAX).is_err());
        assert!(Pages::for_svm(usize::MAX, 1, 0).is_none());
    }
}
