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
        let (start, end, has_gaps) = place_in_root(self.memory, self.range);
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

/// Returns the start and end of an object's bytes in its root, and whether bytes in between do not
/// belong to the object.
fn place_in_root(memory: &Memory, range: Range) -> (u64, u64, bool) {
    let size = memory.root().size();
    let Some(parent) = memory.parent() else {
        return match memory.kind() {
            MemoryKind::Image(_) => (0, size, range.size != size),
            _ => in_bounds(range.offset, range.size, size),
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
            let (start, end, _) =
                place_in_root(parent, Range { offset: memory.origin(), size: reach });
            (start, end, has_gaps)
        }
        // A view of an image has all pixels of that image.
        MemoryKind::Image(_) => {
            let (start, end, has_gaps) =
                place_in_root(parent, Range { offset: 0, size: parent.size() });
            (start, end, has_gaps || range.size != memory.size())
        }
        _ => {
            let offset = memory.origin().saturating_add(range.offset);
            place_in_root(parent, Range { offset, size: range.size })
        }
    }
}

fn in_bounds(offset: u64, size: u64, all: u64) -> (u64, u64, bool) {
    let start = offset.min(all);
    (start, start.saturating_add(size).min(all), false)
}
