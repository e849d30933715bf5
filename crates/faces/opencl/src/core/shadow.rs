//! Host memory of a memory object, to which mapped pointers point. Its address is constant until
//! the object is gone, because programs keep using mapped pointers as staging memory.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, ProtFlags};

use crate::edge::{ClError, ClResult, require};
use penstock_cl_sys::*;

/// Addresses for shared virtual memory. They are probably free in other processes, too: they are
/// far from where Linux places programs, heaps (0x55.., 0x56..) and libraries (0x7f..).
const SVM_BASES: std::ops::Range<usize> = 0x1000_0000_0000..0x4000_0000_0000;

/// Zeroed pages, unmapped when dropped. A page costs nothing until it is touched.
#[derive(Debug)]
pub(crate) struct Pages {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: The pages belong to this value alone. Writers through the raw address must synchronise,
// as the specification demands of the program.
unsafe impl Send for Pages {}
// SAFETY: As above; nothing here writes through a shared reference.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `length` bytes anywhere.
    ///
    /// # Errors
    /// `CL_MAP_FAILURE` if the system lacks the memory.
    pub(crate) fn anywhere(length: usize) -> ClResult<Self> {
        Self::at(ptr::null_mut(), length, MapFlags::PRIVATE | MapFlags::NORESERVE)
            .ok_or(ClError(CL_MAP_FAILURE))
    }

    /// Maps at least `length` aligned bytes at an address that is probably free in other processes,
    /// too. Each `attempt` tries another address.
    pub(crate) fn for_svm(length: usize, alignment: usize, attempt: usize) -> Option<Self> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        const STEP: usize = 2 << 20;
        let alignment = alignment.max(STEP);
        let room = length.checked_next_multiple_of(STEP)?.checked_add(alignment)?;
        // Processes start at different places, so that workers of several clients do not collide.
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
        // SAFETY: The new anonymous mapping replaces no other: without FIXED the address is a hint,
        // and with FIXED_NOREPLACE a taken address is an error.
        let mapped = unsafe {
            mm::mmap_anonymous(address, length, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let pages = Self { address: NonNull::new(mapped.ok()?)?, length };
        // Kernels before 4.17 take FIXED_NOREPLACE as a hint.
        (address.is_null() || address == pages.address.as_ptr()).then_some(pages)
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `at` made the mapping, and it is unmapped once. Pointers into a released memory
        // object may not be used.
        _ = unsafe { mm::munmap(self.address.as_ptr(), self.length) };
    }
}

/// Returns the bytes of the program that a command writes to the device.
///
/// # Safety
/// The `length` bytes at `address` must be readable, and unchanged as long as the slice lives.
pub(crate) unsafe fn host_bytes<'a>(address: *const c_void, length: usize) -> ClResult<&'a [u8]> {
    require(!address.is_null() && isize::try_from(length).is_ok(), CL_INVALID_VALUE)?;
    // SAFETY: Guaranteed by the caller; not null, and no longer than a slice may be.
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
