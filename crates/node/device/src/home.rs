//! Home memory: memory of this process that kernels work on, without a copy on the way.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use penstock_wire::status::Status;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Smallest size for huge pages, whose faults clear 2 MiB at once instead of 4 KiB.
const HUGE_BYTES_MIN: usize = 4 << 20;

/// Memory of this process that is lent for a buffer and given back by dropping this value.
///
/// # Safety
/// Until the value is dropped, the bytes of [`HostMemory::range`] that [`HostMemory::pieces`] lists
/// are mapped for reading and writing.
pub unsafe trait HostMemory: Send + Sync {
    /// Returns start and size in bytes.
    fn range(&self) -> (NonNull<u8>, usize);

    /// Returns the mapped parts: ranges of whole pages, in order. By default everything is mapped.
    fn pieces(&self) -> Vec<Range<usize>> {
        std::iter::once(0..self.range().1).collect()
    }

    /// Returns whether kernels of a GPU use the memory. Otherwise a GPU only copies it.
    fn is_for_kernels(&self) -> bool {
        true
    }
}

/// Pages of this process: its own, which are zero at first and unmapped when dropped, or lent ones.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    lent: Option<Box<dyn HostMemory>>,
}

// SAFETY: only the mapping refers to its pages; shared users copy through raw pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` zero bytes anywhere.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, Status> {
        // SAFETY: without an address the kernel chooses unused pages.
        let pages = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = pages.ok().and_then(|pages| NonNull::new(pages.cast()));
        Ok(Self::of(start.ok_or(Status::OUT_OF_HOST_MEMORY)?, bytes))
    }

    /// Maps `bytes` zero bytes at `address`, which is a page's, if nothing is mapped there.
    pub(crate) fn zeroed_at(address: usize, bytes: usize) -> Result<Self, Status> {
        let wanted = std::ptr::with_exposed_provenance_mut(address);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE fails if anything is mapped there, so no other memory is touched.
        let pages = unsafe {
            rustix::mm::mmap_anonymous(wanted, bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let start = pages.ok().and_then(|pages| NonNull::new(pages.cast()));
        let mapping = Self::of(start.ok_or(Status::MEM_OBJECT_ALLOCATION_FAILURE)?, bytes);
        // A kernel older than 4.17 takes the address as a mere hint.
        if mapping.address().addr() == address {
            Ok(mapping)
        } else {
            Err(Status::MEM_OBJECT_ALLOCATION_FAILURE)
        }
    }

    fn of(start: NonNull<u8>, bytes: usize) -> Self {
        if bytes >= HUGE_BYTES_MIN {
            // SAFETY: the range is the mapping. The advice only affects speed, so it may fail.
            let _ =
                unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Self { start, bytes, lent: None }
    }

    pub(crate) fn lent(memory: Box<dyn HostMemory>) -> Self {
        let (start, bytes) = memory.range();
        Self { start, bytes, lent: Some(memory) }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes to `offset`. Panics if they are out of bounds.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: the range was checked; `bytes` is elsewhere: no reference to the mapping exists.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address().add(offset), bytes.len()) }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("start", &self.start)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.lent.is_some() {
            return;
        }
        // SAFETY: the pages are ours; no pointer to them is left when the mapping is dropped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Home memory of a buffer or sub-buffer. Kernels may change it at any time, so most users copy it
/// through raw pointers; `fill` and [`crate::HomeBytes`] lend it as a slice.
#[derive(Debug)]
pub struct Home<'a> {
    start: NonNull<u8>,
    bytes: usize,
    owner: PhantomData<&'a Mapping>,
}

impl<'a> Home<'a> {
    /// Makes the home memory of part of a mapping; `None` if it is out of bounds.
    pub(crate) fn part(
        mapping: NonNull<u8>,
        mapped: usize,
        offset: usize,
        bytes: usize,
    ) -> Option<Self> {
        offset.checked_add(bytes).filter(|&end| end <= mapped)?;
        // SAFETY: the offset lies within the mapping, as checked.
        let start = unsafe { mapping.add(offset) };
        Some(Self { start, bytes, owner: PhantomData::<&'a Mapping> })
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if they are out of bounds.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Status> {
        let place = self.place(offset, into.len())?;
        // SAFETY: the range was checked; `into` is no part of the buffer.
        unsafe { std::ptr::copy(place, into.as_mut_ptr(), into.len()) }
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if they are out of bounds.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Status> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: the range was checked; `bytes` is no part of the buffer.
        unsafe { std::ptr::copy(bytes.as_ptr(), place, bytes.len()) }
        Ok(())
    }

    /// Lets `fill` write `size` bytes at `offset` directly. `None` if they are out of bounds.
    ///
    /// If a kernel works on the same bytes meanwhile, OpenCL leaves their content undefined. They
    /// are plain bytes to everybody here, and only the program that did it sees them.
    pub fn fill<E>(
        &self,
        offset: u64,
        size: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let length = usize::try_from(size).ok()?;
        let place = self.place(offset, length).ok()?;
        // SAFETY: the range was checked, and stays mapped while `self` borrows its owner.
        Some(fill(unsafe { std::slice::from_raw_parts_mut(place, length) }))
    }

    /// Returns address and length, for system calls that copy to or from them.
    pub fn range(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.bytes)
    }

    /// Returns the address of a range, if it is within bounds.
    pub(crate) fn place(&self, offset: u64, length: usize) -> Result<*mut u8, Status> {
        let offset = usize::try_from(offset).map_err(|_| Status::INVALID_VALUE)?;
        let end = offset.checked_add(length).ok_or(Status::INVALID_VALUE)?;
        if end > self.bytes {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the offset was checked.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_zero_and_keeps_what_is_written() {
        let mapping = Mapping::zeroed(1 << 16).unwrap();
        let home = Home::part(mapping.start, mapping.bytes, 0, 1 << 16).unwrap();
        let mut bytes = [1; 16];
        home.read(100, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
        mapping.write((1 << 16) - 4, &[1, 2, 3, 4]);
        home.read((1 << 16) - 16, &mut bytes).unwrap();
        assert_eq!(bytes[12..], [1, 2, 3, 4]);
    }

    #[test]
    fn an_address_that_is_taken_is_refused() {
        let first = Mapping::zeroed(1 << 16).unwrap();
        let address = first.address().addr();
        assert!(Mapping::zeroed_at(address, 4096).is_err());
        drop(first);
        let again = Mapping::zeroed_at(address, 4096).unwrap();
        assert_eq!(again.address().addr(), address);
        assert!(Mapping::zeroed_at(0, 4096).is_err());
    }

    #[test]
    fn nothing_beyond_the_buffer_is_touched() {
        let mapping = Mapping::zeroed(4096).unwrap();
        let home = Home::part(mapping.start, mapping.bytes, 1024, 1024).unwrap();
        assert!(home.write(1020, &[0; 5]).is_err());
        assert!(home.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(home.write(1020, &[7; 4]).is_ok());
        assert!(Home::part(mapping.start, mapping.bytes, 4000, 100).is_none());
        assert!(Home::part(mapping.start, mapping.bytes, usize::MAX, 2).is_none());
    }
}
