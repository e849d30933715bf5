//! Boxes in linear memory: rows and slices with pitches.

use penstock_cl_sys::*;
use penstock_trial::{Defect, planted};

use crate::edge::{ClError, ClResult, require};

/// Box in linear memory: width in bytes, height in rows, depth in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the first byte.
    pub(crate) start: usize,
    /// Distance between two rows in bytes.
    pub(crate) row_pitch: usize,
    /// Distance between two slices in bytes.
    pub(crate) slice_pitch: usize,
}

impl Layout {
    /// Returns the layout of a region of a `clEnqueue*BufferRect`, with pitches of 0 filled in.
    pub(crate) fn of_rect(
        origin: [usize; 3],
        region: [usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> ClResult<Self> {
        // "If buffer_row_pitch is 0, buffer_row_pitch is computed as region[0]."
        let row = if row_pitch == 0 { region[0] } else { row_pitch };
        // "CL_INVALID_VALUE if buffer_row_pitch is not 0 and is less than region[0]."
        require(row >= region[0], CL_INVALID_VALUE)?;
        // "If buffer_slice_pitch is 0, buffer_slice_pitch is computed as region[1] x
        // buffer_row_pitch."
        let least = region[1].checked_mul(row).ok_or(ClError(CL_INVALID_VALUE))?;
        let slice = if slice_pitch == 0 { least } else { slice_pitch };
        // "CL_INVALID_VALUE if buffer_slice_pitch is not 0 and is less than region[1] x
        // buffer_row_pitch and not a multiple of buffer_row_pitch." Like every driver, this
        // requires both conditions.
        require(slice >= least && slice % row.max(1) == 0, CL_INVALID_VALUE)?;
        // "The offset in bytes is computed as origin[2] x slice_pitch + origin[1] x row_pitch +
        // origin[0]."
        let start = offset(origin, row, slice).ok_or(ClError(CL_INVALID_VALUE))?;
        Ok(Self { start, row_pitch: row, slice_pitch: slice })
    }

    /// Returns the offset behind the last byte of `region`; `None` on overflow.
    pub(crate) fn end(&self, region: [usize; 3]) -> Option<usize> {
        let last = offset(
            [region[0], region[1].checked_sub(1)?, region[2].checked_sub(1)?],
            self.row_pitch,
            self.slice_pitch,
        )?;
        self.start.checked_add(last)
    }

    /// Returns the rows of `region` as offset and length. Adjacent rows form one piece.
    pub(crate) fn pieces(self, region: [usize; 3]) -> Pieces {
        let mut shape = region;
        if self.row_pitch == shape[0] || shape[1] == 1 || planted(Defect::HostPitch) {
            // Rows are adjacent, so a slice is one piece; adjacent slices are one piece, too.
            let slice = shape[0] * shape[1];
            if self.slice_pitch == slice || shape[2] == 1 {
                shape = [slice * shape[2], 1, 1];
            } else {
                shape = [slice, 1, shape[2]];
            }
        }
        Pieces { layout: self, shape, row: 0, slice: 0 }
    }
}

fn offset(at: [usize; 3], row_pitch: usize, slice_pitch: usize) -> Option<usize> {
    at[2].checked_mul(slice_pitch)?.checked_add(at[1].checked_mul(row_pitch)?)?.checked_add(at[0])
}

/// Iterator over the rows of a region: see [`Layout::pieces`].
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    layout: Layout,
    shape: [usize; 3],
    row: usize,
    slice: usize,
}

impl Pieces {
    /// Returns one piece of `length` bytes.
    pub(crate) const fn one(length: usize) -> Self {
        let layout = Layout { start: 0, row_pitch: length, slice_pitch: length };
        Self { layout, shape: [length, 1, 1], row: 0, slice: 0 }
    }

    /// Returns offset and length of the only piece; `None` if there are several.
    pub(crate) fn only(&self) -> Option<(usize, usize)> {
        let [length, rows, slices] = self.shape;
        (rows == 1 && slices == 1).then_some((self.layout.start, length))
    }

    /// Returns the bytes per piece, the pieces per slice, and the number of slices.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the length of each piece in bytes.
    pub(crate) fn length(&self) -> usize {
        self.shape[0]
    }

    /// Returns the offset of a piece.
    pub(crate) fn nth_offset(&self, index: usize) -> Option<usize> {
        let (slice, row) = (index / self.shape[1].max(1), index % self.shape[1].max(1));
        (slice < self.shape[2]).then(|| self.at(row, slice))
    }

    fn at(&self, row: usize, slice: usize) -> usize {
        self.layout.start + slice * self.layout.slice_pitch + row * self.layout.row_pitch
    }
}

impl Iterator for Pieces {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.slice >= self.shape[2] || self.shape[1] == 0 {
            return None;
        }
        let piece = (self.at(self.row, self.slice), self.shape[0]);
        self.row += 1;
        if self.row == self.shape[1] {
            self.row = 0;
            self.slice += 1;
        }
        Some(piece)
    }
}

/// Returns whether two boxes with equal pitches in the same memory overlap, by the specification's
/// `check_copy_overlap`.
pub(crate) fn overlap(source: &Layout, target: &Layout, region: [usize; 3]) -> bool {
    let (row, slice) = (source.row_pitch.max(1), source.slice_pitch.max(1));
    let (Some(source_end), Some(target_end)) = (source.end(region), target.end(region)) else {
        return true;
    };
    // "No overlap if dst ends before src starts or if src ends before dst starts."
    if target_end <= source.start || source_end <= target.start {
        return false;
    }
    let fits_gap = |a: usize, b: usize, extent: usize, pitch: usize| {
        a >= b + extent && a + extent <= b + pitch
    };
    let apart = |pitch: usize, extent: usize| {
        let (a, b) = (source.start % pitch, target.start % pitch);
        fits_gap(a, b, extent, pitch) || fits_gap(b, a, extent, pitch)
    };
    // "No overlap if region[0] for dst or src fits in the gap between region[0] and row_pitch"; the
    // same holds for slices.
    let slice_size = region[1].saturating_sub(1) * row + region[0];
    !(apart(row, region[0]) || apart(slice, slice_size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitches_of_zero_are_filled_in() {
        let layout = Layout::of_rect([4, 1, 2], [8, 3, 2], 0, 0).unwrap();
        assert_eq!(layout, Layout { start: 2 * 24 + 8 + 4, row_pitch: 8, slice_pitch: 24 });
        assert_eq!(layout.end([8, 3, 2]), Some(60 + 24 + 16 + 8));
    }

    #[test]
    fn small_pitches_are_refused() {
        assert!(Layout::of_rect([0; 3], [8, 2, 1], 7, 0).is_err());
        assert!(Layout::of_rect([0; 3], [8, 2, 2], 8, 15).is_err());
        assert!(Layout::of_rect([0; 3], [8, 2, 2], 8, 20).is_err());
        assert!(Layout::of_rect([0; 3], [8, 2, 2], 8, 24).is_ok());
        assert!(Layout::of_rect([0, 0, usize::MAX], [8, 2, 2], 8, 24).is_err());
    }

    #[test]
    fn rows_that_touch_are_one_piece() {
        let pieces = |row, slice, region| {
            Layout { start: 10, row_pitch: row, slice_pitch: slice }.pieces(region)
        };
        assert_eq!(pieces(8, 16, [8, 2, 3]).collect::<Vec<_>>(), [(10, 48)]);
        assert_eq!(pieces(8, 32, [8, 2, 2]).collect::<Vec<_>>(), [(10, 16), (42, 16)]);
        assert_eq!(
            pieces(9, 18, [8, 2, 2]).collect::<Vec<_>>(),
            [(10, 8), (19, 8), (28, 8), (37, 8)]
        );
        assert_eq!(pieces(100, 100, [8, 1, 1]).collect::<Vec<_>>(), [(10, 8)]);
    }

    #[test]
    fn pieces_are_found_by_number() {
        let pieces = Layout { start: 1, row_pitch: 9, slice_pitch: 20 }.pieces([8, 2, 2]);
        let all: Vec<usize> = pieces.clone().map(|(offset, _)| offset).collect();
        let found: Vec<usize> = (0..4).filter_map(|index| pieces.nth_offset(index)).collect();
        assert_eq!(all, found);
        assert_eq!(pieces.nth_offset(4), None);
    }

    /// Compares every byte of both boxes.
    fn overlap_by_force(source: &Layout, target: &Layout, region: [usize; 3]) -> bool {
        let bytes = |layout: &Layout| -> Vec<usize> {
            layout.pieces(region).flat_map(|(offset, length)| offset..offset + length).collect()
        };
        let other = bytes(target);
        bytes(source).iter().any(|byte| other.contains(byte))
    }

    #[test]
    fn overlap_is_found_as_by_trying_every_byte() {
        let (row, slice) = (6, 18);
        for region in [[2, 2, 2], [6, 1, 1], [3, 2, 1], [2, 3, 2], [5, 1, 2]] {
            for start in 0..40 {
                let source = Layout { start: 20, row_pitch: row, slice_pitch: slice };
                let target = Layout { start, row_pitch: row, slice_pitch: slice };
                let fits = |layout: &Layout| {
                    layout.start % row + region[0] <= row && layout.start / row % 3 + region[1] <= 3
                };
                if fits(&source) && fits(&target) {
                    let expected = overlap_by_force(&source, &target, region);
                    assert_eq!(
                        overlap(&source, &target, region),
                        expected,
                        "{region:?} at {start}"
                    );
                }
            }
        }
    }
}
