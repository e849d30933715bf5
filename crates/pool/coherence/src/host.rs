//! The program's own memory, as far as commands read and write it.

use std::collections::BTreeMap;

use crate::names::CommandId;

/// Number of rows up to which two shapes are compared row by row. Larger shapes overlap if their
/// bounds do. This is safe, because at worst a command waits for another one without need.
/// Comparing a thousand rows takes some microseconds.
const ROWS_COMPARED_MAX: u64 = 1024;

/// A part of the program's memory: rows of equal length, with gaps between rows and between slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostShape {
    pub start: u64,
    /// Length of a row in bytes.
    pub row: u64,
    /// Number of rows in a slice.
    pub rows: u64,
    /// Distance between rows in bytes.
    pub row_pitch: u64,
    pub slices: u64,
    /// Distance between slices in bytes.
    pub slice_pitch: u64,
}

impl HostShape {
    /// The whole memory. A function of the program may write all of it.
    pub const EVERYTHING: Self = Self::linear(0, u64::MAX);

    /// Returns `bytes` bytes without gaps.
    pub const fn linear(start: u64, bytes: u64) -> Self {
        Self { start, row: bytes, rows: 1, row_pitch: bytes, slices: 1, slice_pitch: bytes }
    }

    fn is_empty(&self) -> bool {
        self.row == 0 || self.rows == 0 || self.slices == 0
    }

    /// Returns the number of bytes from the first to the last byte.
    fn reach(&self) -> u64 {
        let steps = |count: u64, pitch: u64| count.saturating_sub(1).saturating_mul(pitch);
        steps(self.slices, self.slice_pitch)
            .saturating_add(steps(self.rows, self.row_pitch))
            .saturating_add(self.row)
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.reach())
    }

    fn all_rows(&self) -> u64 {
        self.rows.saturating_mul(self.slices)
    }

    /// Returns whether the two shapes have a byte in common. May return `true` for disjoint shapes
    /// with very many rows.
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.is_empty()
            || other.is_empty()
            || self.end() <= other.start
            || other.end() <= self.start
        {
            return false;
        }
        let (few, many) =
            if self.all_rows() <= other.all_rows() { (self, other) } else { (other, self) };
        if few.all_rows() > ROWS_COMPARED_MAX || many.slices > ROWS_COMPARED_MAX {
            return true;
        }
        let mut rows = (0..few.slices).flat_map(|z| (0..few.rows).map(move |y| (z, y)));
        rows.any(|(z, y)| {
            let start =
                few.start.saturating_add(z * few.slice_pitch).saturating_add(y * few.row_pitch);
            many.touches(start, start.saturating_add(few.row))
        })
    }

    /// Returns whether a row has a byte in `start..end`.
    fn touches(&self, start: u64, end: u64) -> bool {
        (0..self.slices).any(|z| {
            let base = i128::from(self.start) + i128::from(z) * i128::from(self.slice_pitch);
            let (start, end) = (i128::from(start) - base, i128::from(end) - base);
            if self.rows == 1 || self.row_pitch == 0 {
                return start < i128::from(self.row) && end > 0;
            }
            let pitch = i128::from(self.row_pitch);
            // Row `y` lies at `y * pitch .. y * pitch + row`.
            let first = ((start - i128::from(self.row)).div_euclid(pitch) + 1).max(0);
            let last = (end - 1).div_euclid(pitch).min(i128::from(self.rows) - 1);
            first <= last
        })
    }
}

/// The commands that will write the program's memory and have not ended.
#[derive(Debug, Default)]
pub(crate) struct HostWrites {
    by_start: BTreeMap<(u64, CommandId), HostShape>,
    /// No shape reaches farther than this from its start.
    reach_max: u64,
}

impl HostWrites {
    pub(crate) fn insert(&mut self, id: CommandId, shape: HostShape) {
        self.reach_max = self.reach_max.max(shape.reach());
        self.by_start.insert((shape.start, id), shape);
    }

    pub(crate) fn remove(&mut self, id: CommandId, shape: &HostShape) {
        self.by_start.remove(&(shape.start, id));
        if self.by_start.is_empty() {
            self.reach_max = 0;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns the commands that will write some byte of `shape`.
    pub(crate) fn overlapping(&self, shape: &HostShape) -> impl Iterator<Item = CommandId> {
        let first = shape.start.saturating_sub(self.reach_max);
        let near = self.by_start.range((first, CommandId(0))..(shape.end(), CommandId(0)));
        near.filter(move |(_, other)| other.overlaps(shape)).map(|((_, id), _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bytes(shape: &HostShape) -> BTreeSet<u64> {
        let rows = (0..shape.slices).flat_map(|z| (0..shape.rows).map(move |y| (z, y)));
        rows.flat_map(|(z, y)| {
            let start = shape.start + z * shape.slice_pitch + y * shape.row_pitch;
            start..start + shape.row
        })
        .collect()
    }

    fn shapes() -> impl Strategy<Value = HostShape> {
        (0..80u64, 0..6u64, 1..5u64, 0..4u64, 1..4u64, 0..4u64).prop_map(
            |(start, row, rows, gap, slices, slice_gap)| {
                let row_pitch = row + gap;
                let slice_pitch = rows * row_pitch + slice_gap;
                HostShape { start, row, rows, row_pitch, slices, slice_pitch }
            },
        )
    }

    proptest! {
        #[test]
        fn shapes_overlap_where_they_have_a_byte_in_common(one in shapes(), other in shapes()) {
            let common = !bytes(&one).is_disjoint(&bytes(&other));
            prop_assert_eq!(one.overlaps(&other), common);
            prop_assert_eq!(other.overlaps(&one), common);
        }

        #[test]
        fn pending_writes_are_found(all in prop::collection::vec(shapes(), 0..8), asked in shapes()) {
            let mut writes = HostWrites::default();
            for (id, shape) in (0..).zip(&all) {
                writes.insert(CommandId(id), *shape);
            }
            let mut found: Vec<u64> = writes.overlapping(&asked).map(|id| id.0).collect();
            found.sort_unstable();
            let expected = (0..).zip(&all).filter(|(_, shape)| shape.overlaps(&asked)).map(|(id, _)| id);
            prop_assert_eq!(found, expected.collect::<Vec<u64>>());
        }
    }

    #[test]
    fn everything_overlaps_everything() {
        assert!(HostShape::EVERYTHING.overlaps(&HostShape::linear(u64::MAX - 8, 4)));
        assert!(HostShape::linear(0, 1).overlaps(&HostShape::EVERYTHING));
        assert!(!HostShape::EVERYTHING.overlaps(&HostShape::linear(100, 0)));
    }
}
