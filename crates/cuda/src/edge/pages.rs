//! Memory for programs that ask for "pinned" host memory: whole pages of our own.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A mapping of our own, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: only addresses; what the program does with the memory is its business.
unsafe impl Send for Pages {}

impl Pages {
    /// Zeroed memory; none if the system has none.
    pub(crate) fn new(size: usize) -> Option<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at no given address.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, flags) }.ok()?;
        NonNull::new(start.cast()).map(|start| Self { start, size })
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; the program has given it back.
        _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
