//! The program's own memory, as far as commands read and write it.

use std::collections::BTreeMap;

use crate::names::CommandId;

/// Rows that two shapes are compared by, one by one. Beyond, shapes whose bounds overlap count as overlapping, which
/// is safe: a command then waits for one that it need not wait for. A thousand rows are compared in some microseconds.
const ROWS_COMPARED_MAX: u64 = 1024;

/// Bytes of the program's memory: rows of equal length, with gaps between rows and between slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostShape {
    /// Address of the first byte.
    pub start: u64,
    /// Bytes of a row.
    pub row: u64,
    /// Rows of a slice.
    pub rows: u64,
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Slices.
    pub slices: u64,
    /// Bytes from slice to slice.
    pub slice_pitch: u64,
}

impl HostShape {
    /// All of the memory: what a function of the program may write.
    pub const EVERYTHING: Self = Self::linear(0, u64::MAX);

    /// `bytes` bytes without gaps.
    pub const fn linear(start: u64, bytes: u64) -> Self {
        Self { start, row: bytes, rows: 1, row_pitch: bytes, slices: 1, slice_pitch: bytes }
    }

    fn is_empty(&self) -> bool {
        self.row == 0 || self.rows == 0 || self.slices == 0
    }

    /// Bytes from the first one to the last one.
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

    /// Whether the two have a byte in common. May say so of shapes with very many rows that have none.
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

    /// Whether a row has a byte of `start..end`.
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

    /// The commands that will write some byte of `shape`.
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
