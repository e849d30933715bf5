//! Host memory that the driver writes while the program runs.

use std::alloc::Layout;
use std::collections::HashMap;

use crate::backend::{At, Handle};

/// Arrays start at the start of a page, which suits `CL_MEM_USE_HOST_PTR`.
const ALIGN_BYTES: usize = 4096;

#[derive(Clone, Copy)]
struct Area {
    start: usize,
    len: usize,
    own: bool,
}

/// All areas that are valid now.
#[derive(Default)]
pub(crate) struct Areas {
    all: HashMap<usize, Area>,
    next: usize,
}

impl Areas {
    pub(crate) fn array(&mut self, len: usize) -> Handle {
        let start = match layout(len) {
            Some(layout) => {
                // SAFETY: the layout is not empty.
                let start = unsafe { std::alloc::alloc_zeroed(layout) };
                start as usize
            }
            None => 0,
        };
        self.add(Area { start, len: if start == 0 { 0 } else { len }, own: true })
    }

    pub(crate) fn mapping(&mut self, start: usize, len: usize) -> Handle {
        self.add(Area { start, len, own: false })
    }

    fn add(&mut self, area: Area) -> Handle {
        self.next += 1;
        self.all.insert(self.next, area);
        Handle(self.next)
    }

    /// Returns the address and the length of an area.
    pub(crate) fn whole(&self, area: Handle) -> Option<(usize, usize)> {
        self.all.get(&area.0).map(|known| (known.start, known.len))
    }

    /// Removes an area that is no longer used. Returns its address.
    pub(crate) fn remove(&mut self, area: Handle) -> Option<usize> {
        self.take(area).map(|(start, _)| start)
    }

    /// As [`Self::remove`]. Also returns whether the memory was allocated here; if so, it is freed.
    pub(crate) fn take(&mut self, area: Handle) -> Option<(usize, bool)> {
        let known = self.all.remove(&area.0)?;
        if known.own
            && let Some(layout) = layout(known.len)
        {
            // SAFETY: `array` allocated the memory with this layout, and the program that used it
            // has ended.
            unsafe { std::alloc::dealloc(known.start as *mut u8, layout) };
        }
        Some((known.start, known.own))
    }

    /// Returns the address of `at` if `len` bytes of the area follow it.
    pub(crate) fn address(&self, at: At, len: usize) -> Option<usize> {
        let known = self.all.get(&at.area.0)?;
        (at.offset.checked_add(len)? <= known.len).then_some(known.start + at.offset)
    }

    pub(crate) fn load(&self, at: At, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if let Some(address) = self.address(at, len) {
            // SAFETY: the area holds these bytes. The ledger has ordered all commands that write
            // them before this look.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), len) };
        }
        bytes
    }

    pub(crate) fn store(&self, at: At, bytes: &[u8]) {
        if let Some(address) = self.address(at, bytes.len()) {
            // SAFETY: the area holds these bytes. The ledger has ordered all commands that use them
            // before or after this store.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len())
            };
        }
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), ALIGN_BYTES).ok()
}
