//! Mapped pieces of a region, the memory that a guest shares with its host.
//!
//! No seals fix the size of the file. So only files are mapped whose size is decided by those who
//! may write to them: the daemon's file, or the file of a device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::LinkError;

/// Piece of a part of a region, for a ring or for an arena.
#[derive(Debug)]
pub(crate) struct Piece {
    // Dropped before the lock, so that no other process gets the part while it is mapped here.
    pub(crate) window: Window,
    pub(crate) _held: Arc<Held>,
}

/// Descriptor that has the lock on a part. Each mapping of the part keeps it.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) OwnedFd);

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Mapping of a range of a region.
#[derive(Debug)]
pub(crate) struct Window {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value until it is dropped, and is accessed only through raw
// copies here and through the pointer, whose users say who accesses what.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `bytes` bytes at `offset`. Both are multiples of a page.
    pub(crate) fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        flags: MapFlags,
    ) -> Result<Self, LinkError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | flags;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset)
        };
        let base = base.map_err(LinkError::system("mapping memory of a guest"))?;
        let base =
            NonNull::new(base.cast()).ok_or(LinkError::Ring("it was mapped at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Returns the start of the mapping, which is valid as long as this value lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes out. Leaves `into` as it is if they do not lie within the window.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let Some(place) = self.place(at, into.len()) else { return };
        // SAFETY: the bytes lie within the mapping, and `into` is memory of this process alone. The
        // peer may write there at the same time; the bytes are then undefined, and are checked
        // after the copy.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    /// Reads each word of a range once and forgets it. Does nothing if the range does not lie
    /// within the window, or does not begin at a multiple of 8.
    pub(crate) fn read_words(&self, at: usize, bytes: usize) {
        let Some(words) = self.place(at, bytes).map(NonNull::cast::<u64>) else { return };
        if !words.is_aligned() {
            return;
        }
        for word in 0..bytes / size_of::<u64>() {
            // SAFETY: the word lies within the mapping.
            let word = unsafe { words.add(word) };
            // SAFETY: as above, and aligned, because `at` is. Any bits are a number, also if the
            // peer writes them at the same time.
            _ = unsafe { word.read_volatile() };
        }
    }

    /// Copies bytes in, if they lie within the window.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let Some(place) = self.place(at, bytes.len()) else { return };
        // SAFETY: as in `read`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    }

    fn place(&self, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        // SAFETY: `at` is at most the size of the mapping.
        is_inside.then(|| unsafe { self.base.add(at) })
    }
}

/// As [`Window::read_words`], of memory of this process alone.
pub(crate) fn read_own_words(words: &[u64]) {
    for word in words {
        // SAFETY: a reference is valid and aligned.
        _ = unsafe { std::ptr::from_ref(word).read_volatile() };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping with this length; no pointer into it outlives this value.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
