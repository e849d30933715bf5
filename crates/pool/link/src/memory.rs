//! Shared memory that processes map at addresses of their choice: the parts of a symmetric heap.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::LinkError;
use crate::sealed;

/// Nameless shared memory of fixed size that can be sent to other processes. The system frees it
/// with its last descriptor and mapping.
#[derive(Debug)]
pub struct SharedMemory {
    memory: OwnedFd,
    bytes: usize,
}

impl SharedMemory {
    /// Creates `bytes` bytes of memory, all zero. A page costs nothing until it is touched.
    ///
    /// # Errors
    /// Fails if the system lacks memory or descriptors.
    pub fn create(name: &str, bytes: usize) -> Result<Self, LinkError> {
        Ok(Self { memory: sealed::create(name, bytes)?, bytes })
    }

    /// Takes memory that a peer sent, after checking that it is safe to map.
    ///
    /// # Errors
    /// Fails if the descriptor is not sealed memory of this kind.
    pub fn of_peer(memory: OwnedFd) -> Result<Self, LinkError> {
        let bytes = sealed::size(&memory)?;
        Ok(Self { memory, bytes })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// Address range of this process into which memory is mapped. The rest cannot be accessed.
#[derive(Debug)]
pub struct Addresses {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the range belongs to this value until it is dropped. The callers decide who may access
// which part at what time, as for all memory that devices write.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

impl Addresses {
    /// Reserves `bytes` bytes of addresses.
    ///
    /// # Errors
    /// Fails if the process lacks addresses.
    pub fn reserve(bytes: usize) -> Result<Self, LinkError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without a given address the kernel chooses an unused range.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)
        };
        let base = base.map_err(LinkError::system("reserving addresses"))?;
        let base =
            NonNull::new(base.cast()).ok_or(LinkError::Ring("it was mapped at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Returns the start of the range, which is valid as long as this value lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps zeroed memory of this process alone at offset `at`. Both are multiples of a page.
    ///
    /// # Errors
    /// Fails if the piece does not lie within the range, or the system lacks memory.
    pub fn map_private(&mut self, at: usize, bytes: usize) -> Result<(), LinkError> {
        let place = self.place(at, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the place lies within our range, as checked. The caller has exclusive access, so
        // no pointer into the place is in use.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(place.as_ptr().cast(), bytes, protection, flags) };
        mapped.map(drop).map_err(LinkError::system("mapping memory"))
    }

    /// Maps `bytes` bytes of shared memory, from offset `from` on, at offset `at` of the range. All
    /// numbers are multiples of a page.
    ///
    /// # Errors
    /// Fails if the piece does not lie within the range or within the memory.
    pub fn map_shared(
        &mut self,
        at: usize,
        memory: &SharedMemory,
        from: usize,
        bytes: usize,
    ) -> Result<(), LinkError> {
        let place = self.place(at, bytes)?;
        if from.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
            return Err(LinkError::Ring("it is too small"));
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map_private`; the seals fix the size, so the pages stay valid.
        let mapped = unsafe {
            rustix::mm::mmap(
                place.as_ptr().cast(),
                bytes,
                protection,
                flags,
                memory.as_fd(),
                from as u64,
            )
        };
        mapped.map(drop).map_err(LinkError::system("mapping shared memory"))
    }

    fn place(&self, at: usize, bytes: usize) -> Result<NonNull<u8>, LinkError> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(LinkError::Ring("its place is not within the range of addresses"));
        }
        // SAFETY: `at` is at most the size of the range.
        Ok(unsafe { self.base.add(at) })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: `reserve` reserved this range, which includes all that was mapped into it.
        // Pointers into it are valid only as long as this value lives.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn a_part_of_shared_memory_is_seen_at_two_places() {
        let memory = SharedMemory::create("test", 4 * PAGE).unwrap();
        let theirs = SharedMemory::of_peer(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(theirs.bytes(), 4 * PAGE);
        let mut addresses = Addresses::reserve(8 * PAGE).unwrap();
        addresses.map_private(0, PAGE).unwrap();
        addresses.map_shared(2 * PAGE, &memory, PAGE, 2 * PAGE).unwrap();
        addresses.map_shared(5 * PAGE, &theirs, 2 * PAGE, PAGE).unwrap();
        // SAFETY: both offsets are mapped above.
        let seen = unsafe {
            addresses.base().add(3 * PAGE + 7).write_volatile(42);
            addresses.base().add(5 * PAGE + 7).read_volatile()
        };
        assert_eq!(seen, 42);
    }

    #[test]
    fn nothing_is_mapped_beyond_range_or_memory() {
        let memory = SharedMemory::create("test", PAGE).unwrap();
        let mut addresses = Addresses::reserve(2 * PAGE).unwrap();
        assert!(addresses.map_private(PAGE, 2 * PAGE).is_err());
        assert!(addresses.map_private(usize::MAX & !(PAGE - 1), 2 * PAGE).is_err());
        assert!(addresses.map_shared(0, &memory, 0, 2 * PAGE).is_err());
        assert!(addresses.map_shared(0, &memory, usize::MAX & !(PAGE - 1), PAGE).is_err());
        assert!(addresses.map_shared(0, &memory, 0, PAGE).is_ok());
    }
}
