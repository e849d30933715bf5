//! The index space of a launch.

use penstock_wire::status::Status;

use crate::region;

const INVALID_WORK_DIMENSION: Status = Status(penstock_cl_sys::CL_INVALID_WORK_DIMENSION);
const INVALID_GLOBAL_OFFSET: Status = Status(penstock_cl_sys::CL_INVALID_GLOBAL_OFFSET);
const INVALID_GLOBAL_WORK_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_GLOBAL_WORK_SIZE);
const INVALID_WORK_GROUP_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_WORK_GROUP_SIZE);

/// The work-items of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    dims: u32,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

impl Range {
    /// Checks a range of `dims` dimensions. Without `local` the driver chooses the work-groups.
    ///
    /// # Errors
    /// `CL_INVALID_WORK_DIMENSION`, `CL_INVALID_GLOBAL_OFFSET`, `CL_INVALID_GLOBAL_WORK_SIZE`,
    /// `CL_INVALID_WORK_GROUP_SIZE`. The launch finds errors that depend on the device.
    pub fn checked(
        dims: u32,
        offset: [u64; 3],
        global: [u64; 3],
        local: Option<[u64; 3]>,
    ) -> Result<Self, Status> {
        // "CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and
        // 3)."
        if !(1..=3).contains(&dims) {
            return Err(INVALID_WORK_DIMENSION);
        }
        let used = dims as usize;
        for (start, length) in offset.into_iter().zip(global).take(used) {
            // "CL_INVALID_GLOBAL_OFFSET if the value specified in global_work_size + the
            // corresponding values in global_work_offset for any dimensions is greater than the
            // maximum value representable by size t".
            let end = start.checked_add(length).ok_or(INVALID_GLOBAL_OFFSET)?;
            usize::try_from(end).map_err(|_| INVALID_GLOBAL_OFFSET)?;
        }
        // No kernel with more work-items ever ends, and drivers count them in one word (PoCL 3.1
        // aborts).
        let items = global.into_iter().take(used).try_fold(1_u64, u64::checked_mul);
        if items.is_none_or(|items| items > isize::MAX as u64) {
            return Err(INVALID_GLOBAL_WORK_SIZE);
        }
        if local.is_some_and(|local| local.into_iter().take(used).any(|size| size == 0)) {
            return Err(INVALID_WORK_GROUP_SIZE);
        }
        let narrow = |triple: [u64; 3], unused: u64| -> Result<[usize; 3], Status> {
            let mut sizes = [0; 3];
            for (index, (size, value)) in sizes.iter_mut().zip(triple).enumerate() {
                *size = region::narrow(if index < used { value } else { unused })?;
            }
            Ok(sizes)
        };
        let local = local.map(|local| narrow(local, 1)).transpose()?;
        Ok(Self { dims, offset: narrow(offset, 0)?, global: narrow(global, 1)?, local })
    }

    pub(crate) fn dims(&self) -> u32 {
        self.dims
    }

    pub(crate) fn offset(&self) -> &[usize; 3] {
        &self.offset
    }

    pub(crate) fn global(&self) -> &[usize; 3] {
        &self.global
    }

    pub(crate) fn local(&self) -> Option<&[usize; 3]> {
        self.local.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let range = Range::checked(2, [1, 2, 99], [4, 8, 99], Some([2, 2, 0])).unwrap();
        assert_eq!(
            (range.offset, range.global, range.local),
            ([1, 2, 0], [4, 8, 1], Some([2, 2, 1]))
        );
        assert_eq!(Range::checked(0, [0; 3], [1; 3], None), Err(INVALID_WORK_DIMENSION));
        assert_eq!(Range::checked(4, [0; 3], [1; 3], None), Err(INVALID_WORK_DIMENSION));
        assert_eq!(Range::checked(1, [u64::MAX, 0, 0], [1; 3], None), Err(INVALID_GLOBAL_OFFSET));
        assert_eq!(Range::checked(3, [0; 3], [1 << 32; 3], None), Err(INVALID_GLOBAL_WORK_SIZE));
        assert_eq!(
            Range::checked(1, [0; 3], [1; 3], Some([0, 1, 1])),
            Err(INVALID_WORK_GROUP_SIZE)
        );
    }
}
