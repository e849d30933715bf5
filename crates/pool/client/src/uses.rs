//! The memory that commands use, as ranges of the allocations that contain the memory objects.

use std::sync::Arc;

use penstock_coherence::{Access, AllocationId};

use penstock_trial::{Defect, planted};

use crate::memory::{Memory, MemoryKind};
use crate::queue::Range;

/// A command's use of a memory object.
pub(crate) struct Use<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    access: Access,
    range: Range,
}

impl<'a> Use<'a> {
    /// Returns a use of the whole object.
    pub(crate) fn all(memory: &'a Arc<Memory>, access: Access) -> Self {
        Self::part(memory, access, Range { offset: 0, size: memory.size() })
    }

    /// Returns a use of some bytes. For an image the use covers the whole image; only the size of
    /// `range` matters, which tells whether the command uses all of its bytes.
    pub(crate) fn part(memory: &'a Arc<Memory>, access: Access, range: Range) -> Self {
        Self { memory, access, range }
    }

    /// Returns the use for the machine, or `None` if residency does not matter.
    pub(crate) fn of_allocation(&self) -> Option<penstock_coherence::Use> {
        let allocation: AllocationId = self.memory.root().allocation()?;
        let RootPart { start, end, has_gaps } = RootPart::of(self.memory, self.range);
        let is_whole_image =
            matches!(self.memory.kind(), MemoryKind::Image(_)) && self.access == Access::Overwrite;
        if is_whole_image && planted(Defect::ViewOverwrite) {
            let (start, end) = (0, self.memory.root().size());
            return Some(penstock_coherence::Use { allocation, start, end, access: self.access });
        }
        // An image may have bytes between its rows that do not belong to it.
        let may_leave_some = self.access == Access::Overwrite && has_gaps;
        let access = if may_leave_some { Access::Write } else { self.access };
        Some(penstock_coherence::Use { allocation, start, end, access })
    }
}

/// The bytes of an object's root that a range of the object covers.
struct RootPart {
    start: u64,
    end: u64,
    /// Whether bytes between `start` and `end` do not belong to the range.
    has_gaps: bool,
}

impl RootPart {
    fn of(memory: &Memory, range: Range) -> Self {
        let size = memory.root().size();
        let Some(parent) = memory.parent() else {
            return match memory.kind() {
                MemoryKind::Image(_) => Self { start: 0, end: size, has_gaps: range.size != size },
                _ => Self::in_bounds(range, size),
            };
        };
        match memory.kind() {
            // An image over a buffer covers its rows, with the program's pitch.
            MemoryKind::Image(shape) if !matches!(parent.kind(), MemoryKind::Image(_)) => {
                let [width, rows, slices] = shape.extent.map(|extent| extent.max(1));
                let row = width * shape.pixel_size;
                let row_pitch = row.max(shape.description.row_pitch);
                let slice_pitch = (row_pitch * rows).max(shape.description.slice_pitch);
                let reach = (slices - 1) * slice_pitch + (rows - 1) * row_pitch + row;
                let has_gaps = range.size != memory.size() || reach != row * rows * slices;
                let range = Range { offset: memory.origin(), size: reach };
                Self { has_gaps, ..Self::of(parent, range) }
            }
            // A view of an image has all pixels of that image.
            MemoryKind::Image(_) => {
                let whole = Self::of(parent, Range { offset: 0, size: parent.size() });
                Self { has_gaps: whole.has_gaps || range.size != memory.size(), ..whole }
            }
            _ => {
                let offset = memory.origin().saturating_add(range.offset);
                Self::of(parent, Range { offset, size: range.size })
            }
        }
    }

    /// Returns the part of `range` in an object of `size` bytes.
    fn in_bounds(range: Range, size: u64) -> Self {
        let start = range.offset.min(size);
        Self { start, end: start.saturating_add(range.size).min(size), has_gaps: false }
    }
}
