//! Layout of content in a buffer, and its division into parts that fit a slot.

use crate::region::Placed;

/// A box of bytes on the device: `extent[2]` slices of `extent[1]` rows of `extent[0]` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Address of the first byte.
    pub(super) address: u64,
    pub(super) extent: [usize; 3],
    /// Bytes from row to row.
    pub(super) row_pitch: usize,
    /// Bytes from slice to slice: a multiple of `row_pitch`.
    pub(super) slice_pitch: usize,
}

impl Layout {
    /// Lays out contiguous bytes.
    pub(super) fn linear(address: u64, bytes: usize) -> Self {
        Self { address, extent: [bytes, 1, 1], row_pitch: bytes, slice_pitch: bytes }
    }

    /// Lays out a rectangle in a buffer at `base`.
    pub(super) fn rect(base: u64, at: &Placed, extent: [usize; 3]) -> Self {
        let Placed { origin, row_pitch, slice_pitch } = *at;
        let start = origin[2] * slice_pitch + origin[1] * row_pitch + origin[0];
        Self { address: base + start as u64, extent, row_pitch, slice_pitch }
    }

    /// Returns the same bytes in the same order; rows and slices without gaps are merged.
    pub(super) fn merged(mut self) -> Self {
        let [width, height, depth] = self.extent;
        if height == 1 && depth == 1 {
            return Self::linear(self.address, width);
        }
        if height == 1 {
            // Slices of one row are rows.
            self = Self {
                extent: [width, depth, 1],
                row_pitch: self.slice_pitch,
                slice_pitch: self.slice_pitch * depth,
                ..self
            };
        }
        let [width, height, depth] = self.extent;
        if self.row_pitch == width && (depth == 1 || self.slice_pitch == width * height) {
            return Self::linear(self.address, width * height * depth);
        }
        self
    }

    pub(super) fn is_linear(&self) -> bool {
        self.extent[1] == 1 && self.extent[2] == 1
    }

    pub(super) fn bytes(&self) -> usize {
        self.extent.iter().product()
    }

    /// Returns the part behind the first `done` bytes, in order: a box of one to `max` bytes.
    pub(super) fn part(&self, done: usize, max: usize) -> Self {
        let [width, height, depth] = self.extent;
        let (x, row) = (done % width, done / width);
        let (y, z) = (row % height, row / height);
        let address = self.address + (z * self.slice_pitch + y * self.row_pitch + x) as u64;
        let extent = if x != 0 || width > max {
            [max.min(width - x), 1, 1]
        } else if y != 0 || width * height > max {
            [width, (max / width).min(height - y), 1]
        } else {
            [width, height, (max / (width * height)).min(depth - z)]
        };
        Self { address, extent, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses of all bytes, in order.
    fn addresses(layout: &Layout) -> Vec<u64> {
        let mut all = Vec::new();
        for z in 0..layout.extent[2] {
            for y in 0..layout.extent[1] {
                let row = layout.address + (z * layout.slice_pitch + y * layout.row_pitch) as u64;
                all.extend((0..layout.extent[0]).map(|x| row + x as u64));
            }
        }
        all
    }

    #[test]
    fn parts_are_the_whole_in_order() {
        for extent in [[7, 1, 1], [3, 4, 1], [3, 4, 5], [1, 1, 9], [5, 1, 6]] {
            for (row_pitch, rows) in
                [(extent[0], extent[1]), (extent[0] + 3, extent[1]), (16, extent[1] + 2)]
            {
                let layout =
                    Layout { address: 100, extent, row_pitch, slice_pitch: row_pitch * rows };
                let whole = addresses(&layout);
                assert_eq!(addresses(&layout.merged()), whole);
                for max in [1, 2, 5, 12, 13, 60, 1000] {
                    let (mut done, mut parts) = (0, Vec::new());
                    while done < layout.bytes() {
                        let part = layout.part(done, max);
                        assert!((1..=max).contains(&part.bytes()));
                        done += part.bytes();
                        parts.extend(addresses(&part));
                    }
                    assert_eq!(parts, whole, "{layout:?} by {max}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_gaps_is_one_run() {
        let rect = |base, origin, extent, (row_pitch, slice_pitch)| {
            Layout::rect(base, &Placed { origin, row_pitch, slice_pitch }, extent)
        };
        assert!(rect(0, [0; 3], [4, 3, 2], (4, 12)).merged().is_linear());
        assert!(rect(0, [4, 1, 0], [4, 1, 1], (16, 64)).merged().is_linear());
        assert!(!rect(0, [0; 3], [4, 3, 2], (5, 15)).merged().is_linear());
        assert!(!rect(0, [0; 3], [4, 3, 2], (4, 16)).merged().is_linear());
        assert_eq!(rect(1000, [2, 1, 1], [4, 3, 2], (8, 32)).address, 1000 + 32 + 8 + 2);
    }
}
