//! What a command uses of memory objects, as ranges of the allocations that they are parts and views of.

use std::sync::Arc;

use penstock_coherence::{Access, AllocationId};

use penstock_trial::{Defect, planted};

use crate::memory::{Memory, MemoryKind};
use crate::queue::Range;

/// How a command uses a memory object.
pub(crate) struct Use<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    access: Access,
    range: Range,
}

impl<'a> Use<'a> {
    /// Of all of it.
    pub(crate) fn all(memory: &'a Arc<Memory>, access: Access) -> Self {
        Self::part(memory, access, Range { offset: 0, size: memory.size() })
    }

    /// Of some of its bytes. Of an image that is all of it, and a write over all of an image is one of its bytes.
    pub(crate) fn part(memory: &'a Arc<Memory>, access: Access, range: Range) -> Self {
        Self { memory, access, range }
    }

    /// As the machine takes it; none where residency does not matter.
    pub(crate) fn of_allocation(&self) -> Option<penstock_coherence::Use> {
        let allocation: AllocationId = self.memory.root().allocation()?;
        let (start, end, has_gaps) = place_in_root(self.memory, self.range);
        let is_whole_image =
            matches!(self.memory.kind(), MemoryKind::Image(_)) && self.access == Access::Overwrite;
        if is_whole_image && planted(Defect::ViewOverwrite) {
            let (start, end) = (0, self.memory.root().size());
            return Some(penstock_coherence::Use { allocation, start, end, access: self.access });
        }
        // Between the rows of an image there may be bytes that are not its own.
        let may_leave_some = self.access == Access::Overwrite && has_gaps;
        let access = if may_leave_some { Access::Write } else { self.access };
        Some(penstock_coherence::Use { allocation, start, end, access })
    }
}

/// Where bytes of an object lie in its root, and whether there are bytes between them that are not the object's.
fn place_in_root(memory: &Memory, range: Range) -> (u64, u64, bool) {
    let size = memory.root().size();
    let Some(parent) = memory.parent() else {
        return match memory.kind() {
            MemoryKind::Image(_) => (0, size, range.size != size),
            _ => in_bounds(range.offset, range.size, size),
        };
    };
    match memory.kind() {
        // An image over a buffer: its rows, with the pitch that the program gave.
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
        // A view of an image has all of its pixels.
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
