//! Copies of slices of rows, the common form of all copies of the interface. They run at once or
//! are nodes of a graph.

use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use super::array::Array;
use super::context::Context;
use super::copy::{CopyMode, CopySide};
use super::platform;
use super::row::{RectSize, RowSide, Rows};
use super::stream::Stream;
use crate::edge::{CuResult, Object as _, require};

/// One side of a copy as the program describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescribedSide {
    /// A value of `CU_MEMORYTYPE_...`.
    pub(crate) kind: u32,
    pub(crate) host: usize,
    pub(crate) device: u64,
    /// Number of the array object.
    pub(crate) array: u64,
    /// Distance between the starts of two rows, in bytes. 0: the width of the copy.
    pub(crate) pitch: usize,
    /// Rows of a slice. 0: the height of the copy.
    pub(crate) rows: usize,
    /// Bytes, rows and slices to skip.
    pub(crate) origin: [usize; 3],
}

/// A copy: both sides, and its size in bytes of a row, rows of a slice, and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceCopy {
    pub(crate) to: DescribedSide,
    pub(crate) from: DescribedSide,
    pub(crate) size: [usize; 3],
}

impl From<CopySide> for DescribedSide {
    fn from(side: CopySide) -> Self {
        let none =
            Self { kind: 0, host: 0, device: 0, array: 0, pitch: 0, rows: 0, origin: [0; 3] };
        match side {
            CopySide::Host(bytes) => {
                Self { kind: CU_MEMORYTYPE_HOST, host: bytes.address(), ..none }
            }
            CopySide::Device(address) => {
                Self { kind: CU_MEMORYTYPE_DEVICE, device: address, ..none }
            }
        }
    }
}

impl DescribedSide {
    /// Returns where the rows of slice `z` of the copy begin.
    fn slice(&self, z: usize, width: usize, height: usize) -> CuResult<Rows> {
        let [x, y, first] = self.origin;
        if self.kind == CU_MEMORYTYPE_ARRAY {
            let array = Array::of_number(self.array)?;
            let at = [x as u64, y as u64, (first + z) as u64];
            let size = RectSize { width: width as u64, height: height as u64 };
            let start = array.at(at, size)?;
            return Ok(Rows { side: RowSide::Device(start), pitch: array.pitch });
        }
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let rows = if self.rows == 0 { height } else { self.rows };
        let skipped = (first + z).checked_mul(rows).and_then(|skipped| skipped.checked_add(y));
        let offset =
            skipped.and_then(|rows| rows.checked_mul(pitch)).and_then(|bytes| bytes.checked_add(x));
        let offset = offset.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let address = match self.kind {
            CU_MEMORYTYPE_HOST => self.host as u64,
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => self.device,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let start = address.checked_add(offset as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let side = if platform::device_of(address).is_some() {
            RowSide::Device(start)
        } else if self.kind == CU_MEMORYTYPE_DEVICE || address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        } else {
            RowSide::Host(usize::try_from(start).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
        };
        Ok(Rows { side, pitch: pitch as u64 })
    }

    /// "If specified, srcPitch must be greater than or equal to WidthInBytes + srcXInBytes, and
    /// srcHeight must be greater than or equal to Height + srcY". The distances have no effect on a
    /// single row and on a single slice.
    fn check_distances(&self, [width, height, depth]: [usize; 3]) -> CuResult {
        // An empty copy has no rows that could be too far apart.
        if [width, height, depth].contains(&0) {
            return Ok(());
        }
        let [x, y, _] = self.origin;
        let fits = |distance: usize, skipped: usize, size: usize| {
            distance == 0 || skipped.checked_add(size).is_some_and(|end| end <= distance)
        };
        let rows_fit = (height == 1 && depth == 1) || fits(self.pitch, x, width);
        let slices_fit = depth == 1 || fits(self.rows, y, height);
        let is_array = self.kind == CU_MEMORYTYPE_ARRAY;
        require(is_array || (rows_fit && slices_fit), CUDA_ERROR_INVALID_VALUE)
    }
}

impl SliceCopy {
    /// Makes a copy of contiguous bytes.
    pub(crate) fn linear(to: CopySide, from: CopySide, size: usize) -> Self {
        Self { to: to.into(), from: from.into(), size: [size, 1, 1] }
    }

    /// Checks that both sides describe memory that the copy can use.
    pub(crate) fn check(&self) -> CuResult {
        let [width, height, depth] = self.size;
        if width == 0 || height == 0 || depth == 0 {
            return Ok(());
        }
        for part in [&self.to, &self.from] {
            part.check_distances(self.size)?;
            part.slice(0, width, height)?;
            part.slice(depth - 1, width, height)?;
        }
        Ok(())
    }

    pub(crate) fn run(&self, context: &Context, stream: &Arc<Stream>, when: CopyMode) -> CuResult {
        let [width, height, depth] = self.size;
        self.to.check_distances(self.size)?;
        self.from.check_distances(self.size)?;
        let size = RectSize { width: width as u64, height: height as u64 };
        for z in 0..depth {
            let (to, from) = (self.to.slice(z, width, height)?, self.from.slice(z, width, height)?);
            context.copy_rows(stream, to, from, size, when)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_only_between_rows_and_slices_that_are_copied() {
        let side = |pitch, rows, origin| DescribedSide {
            pitch,
            rows,
            origin,
            ..DescribedSide::from(CopySide::Device(1))
        };
        let fits = |side: &DescribedSide, size| side.check_distances(size).is_ok();
        let close = side(8, 1, [0; 3]);
        assert!(!fits(&close, [16, 2, 1]) && !fits(&close, [8, 2, 2]) && !fits(&close, [16, 1, 2]));
        assert!(fits(&close, [16, 1, 1]) && fits(&close, [8, 2, 1]) && fits(&close, [8, 1, 2]));
        for empty in [[0, 2, 2], [16, 0, 2], [16, 2, 0]] {
            assert!(fits(&close, empty), "{empty:?}");
        }
        let unspecified = side(0, 0, [4, 5, 6]);
        assert!(fits(&unspecified, [16, 2, 3]));
        // What is skipped counts, too.
        assert!(fits(&side(20, 7, [4, 5, 6]), [16, 2, 3]));
        assert!(!fits(&side(19, 7, [4, 5, 6]), [16, 2, 3]));
        assert!(!fits(&side(20, 6, [4, 5, 6]), [16, 2, 3]));
        assert!(!fits(&side(20, 7, [usize::MAX, 5, 6]), [16, 2, 3]));
        let array = DescribedSide { kind: CU_MEMORYTYPE_ARRAY, ..close };
        assert!(fits(&array, [16, 2, 2]));
    }
}
