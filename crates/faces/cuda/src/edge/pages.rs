//! Memory for programs that ask for "pinned" host memory: whole pages that we map.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A mapping of pages, which is unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the value holds only an address and a size. The program decides which threads use the
// memory.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps zeroed pages. Returns `None` if the system has no memory.
    pub(crate) fn new(size: usize) -> Option<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the system chooses replaces no other memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, flags) }.ok()?;
        NonNull::new(start.cast()).map(|start| Self { start, size })
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and the program has freed it.
        _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
