//! The index space of a launch.

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

/// Position or size of a region: `[x, y, z]` or `[width, height, depth]`, with OpenCL's meaning for
/// image arrays and for images of fewer dimensions.
pub type Triple = [U64; 3];

/// The work-items of a launch, as `clEnqueueNDRangeKernel` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpace {
    /// Number of dimensions, from 1 to 3. The others have offset 0 and size 1.
    pub dims: u32,
    /// First global id in each dimension.
    pub offset: [u64; 3],
    /// Number of work-items in each dimension.
    pub global: [u64; 3],
    /// Size of a work-group in each dimension. `None` lets the driver choose.
    pub local: Option<[u64; 3]>,
}

impl IndexSpace {
    /// Makes a space of one dimension that starts at 0.
    pub const fn line(global: u64, local: Option<u64>) -> Self {
        let local = match local {
            Some(local) => Some([local, 1, 1]),
            None => None,
        };
        Self { dims: 1, offset: [0; 3], global: [global, 1, 1], local }
    }

    /// Checks what does not depend on a device. Returns the space with offset 0 and size 1 in the
    /// dimensions that it does not have.
    ///
    /// # Errors
    /// `CL_INVALID_WORK_DIMENSION`, `CL_INVALID_GLOBAL_OFFSET`, `CL_INVALID_GLOBAL_WORK_SIZE`,
    /// `CL_INVALID_WORK_GROUP_SIZE`. The launch finds errors that depend on the device.
    pub fn checked(self) -> Result<Self, Status> {
        // "CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and
        // 3)."
        if !(1..=3).contains(&self.dims) {
            return Err(Status::INVALID_WORK_DIMENSION);
        }
        for (start, length) in self.used(&self.offset).iter().zip(self.global()) {
            // "CL_INVALID_GLOBAL_OFFSET if the value specified in global_work_size + the
            // corresponding values in global_work_offset for any dimensions is greater than the
            // maximum value representable by size t".
            let end = start.checked_add(*length).ok_or(Status::INVALID_GLOBAL_OFFSET)?;
            usize::try_from(end).map_err(|_| Status::INVALID_GLOBAL_OFFSET)?;
        }
        // No kernel with more work-items ever ends, and drivers count them in one word (PoCL 3.1
        // aborts).
        let items = self.global().iter().try_fold(1_u64, |items, size| items.checked_mul(*size));
        if items.is_none_or(|items| items > isize::MAX as u64) {
            return Err(Status::INVALID_GLOBAL_WORK_SIZE);
        }
        if self.local().is_some_and(|local| local.contains(&0)) {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        let filled = |mut sizes: [u64; 3], unused: u64| {
            sizes.iter_mut().skip(self.dims as usize).for_each(|size| *size = unused);
            sizes
        };
        Ok(Self {
            dims: self.dims,
            offset: filled(self.offset, 0),
            global: filled(self.global, 1),
            local: self.local.map(|local| filled(local, 1)),
        })
    }

    /// Returns whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.global().contains(&0)
    }

    /// Returns the number of work-items in each of the dimensions.
    pub fn global(&self) -> &[u64] {
        self.used(&self.global)
    }

    /// Returns the size of a work-group in each of the dimensions.
    pub fn local(&self) -> Option<&[u64]> {
        self.local.as_ref().map(|local| self.used(local))
    }

    /// Returns the number of work-groups, of which the last ones of a dimension may be smaller.
    /// Without a local size only the driver knows the number.
    pub fn groups(&self) -> Option<u64> {
        let axes = self.global().iter().zip(self.local()?);
        let groups = axes.map(|(global, local)| global.div_ceil((*local).max(1)));
        Some(groups.fold(1, u64::saturating_mul))
    }

    /// Returns the number of work-items of a work-group, if the program chose it.
    pub fn group_items(&self) -> Option<u64> {
        Some(self.local()?.iter().copied().fold(1, u64::saturating_mul))
    }

    fn used<'a>(&self, sizes: &'a [u64; 3]) -> &'a [u64] {
        sizes.get(..self.dims as usize).unwrap_or(sizes)
    }
}

/// An index space in the frame of a call.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct SpaceFrame {
    dims: U32,
    /// Not 0 if `local` is given.
    has_local: U32,
    offset: Triple,
    global: Triple,
    local: Triple,
}

impl From<IndexSpace> for SpaceFrame {
    fn from(space: IndexSpace) -> Self {
        Self {
            dims: U32::new(space.dims),
            has_local: U32::new(space.local.is_some().into()),
            offset: space.offset.map(U64::new),
            global: space.global.map(U64::new),
            local: space.local.unwrap_or_default().map(U64::new),
        }
    }
}

impl From<SpaceFrame> for IndexSpace {
    fn from(frame: SpaceFrame) -> Self {
        let sizes = |sizes: Triple| sizes.map(U64::get);
        Self {
            dims: frame.dims.get(),
            offset: sizes(frame.offset),
            global: sizes(frame.global),
            local: (frame.has_local.get() != 0).then(|| sizes(frame.local)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_survives_the_wire() {
        let spaces = [
            IndexSpace::line(10, None),
            IndexSpace { dims: 3, offset: [1, 2, 3], global: [4, 5, 6], local: Some([2, 5, 1]) },
        ];
        for space in spaces {
            assert_eq!(IndexSpace::from(SpaceFrame::from(space)), space);
        }
    }

    #[test]
    fn only_the_dimensions_of_the_space_count() {
        let space =
            IndexSpace { dims: 2, offset: [0; 3], global: [10, 4, 0], local: Some([4, 2, 0]) };
        assert!(!space.is_empty());
        assert_eq!((space.groups(), space.group_items()), (Some(6), Some(8)));
        assert_eq!((space.global(), space.local()), (&[10, 4][..], Some(&[4, 2][..])));
        assert_eq!(IndexSpace::line(10, None).groups(), None);
        assert!(IndexSpace::line(0, Some(4)).is_empty());
        // A peer may send any number of dimensions.
        assert_eq!(IndexSpace { dims: 9, ..space }.global(), [10, 4, 0]);
    }

    #[test]
    fn spaces_are_checked() {
        let checked =
            |dims, offset, global, local| IndexSpace { dims, offset, global, local }.checked();
        assert_eq!(
            checked(2, [1, 2, 99], [4, 8, 99], Some([2, 2, 0])),
            Ok(IndexSpace {
                dims: 2,
                offset: [1, 2, 0],
                global: [4, 8, 1],
                local: Some([2, 2, 1])
            })
        );
        let zero = [0; 3];
        assert_eq!(checked(0, zero, [1; 3], None), Err(Status::INVALID_WORK_DIMENSION));
        assert_eq!(checked(4, zero, [1; 3], None), Err(Status::INVALID_WORK_DIMENSION));
        let far = [u64::MAX, 0, 0];
        assert_eq!(checked(1, far, [1; 3], None), Err(Status::INVALID_GLOBAL_OFFSET));
        assert_eq!(checked(3, zero, [1 << 32; 3], None), Err(Status::INVALID_GLOBAL_WORK_SIZE));
        let empty = Some([0, 1, 1]);
        assert_eq!(checked(1, zero, [1; 3], empty), Err(Status::INVALID_WORK_GROUP_SIZE));
    }
}
