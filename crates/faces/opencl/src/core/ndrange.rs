//! The index space of a launch.

use penstock_cl_sys::*;
use penstock_client::IndexSpace;

use crate::edge::{ClError, ClResult, require};

/// Limits of a kernel on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// `CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS`; no driver has over three.
    pub(crate) dims: cl_uint,
    /// Largest work-group per dimension: `CL_DEVICE_MAX_WORK_ITEM_SIZES`.
    pub(crate) items: [usize; 3],
    /// Largest size of a work-group: `CL_KERNEL_WORK_GROUP_SIZE`.
    pub(crate) group: usize,
    /// `CL_KERNEL_COMPILE_WORK_GROUP_SIZE`; zeros if the kernel requires no size.
    pub(crate) required: [usize; 3],
    /// Local memory of a work-group.
    pub(crate) local: LocalMemory,
    /// Largest size that an address of the device can express.
    pub(crate) address: u64,
    /// Whether the last work-group of a dimension may be smaller.
    pub(crate) not_uniform: bool,
    /// Whether an empty index space is allowed (OpenCL 2.1).
    pub(crate) empty: bool,
}

/// Local memory of a work-group in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalMemory {
    /// `CL_KERNEL_LOCAL_MEM_SIZE` before any argument is set: what the kernel itself declares.
    pub(crate) declared: u64,
    /// `CL_DEVICE_LOCAL_MEM_SIZE`; `u64::MAX` if the device does not report it.
    pub(crate) most: u64,
}

impl LocalMemory {
    /// Checks that a work-group can have its local memory. `args`: bytes of the local arguments.
    ///
    /// Drivers may need more than the sum, to align the arguments. Such a refusal comes later.
    pub(crate) fn check(self, args: u64) -> ClResult {
        // "CL_OUT_OF_RESOURCES if there is a failure to queue the execution instance of kernel on
        // the command-queue because of insufficient resources needed to execute the kernel. For
        // example, the explicitly specified local_work_size causes a failure to execute the kernel
        // because of insufficient resources such as registers or local memory."
        require(self.declared.saturating_add(args) <= self.most, CL_OUT_OF_RESOURCES)
    }
}

impl Limits {
    /// Makes an index space and checks it. Each array has `dims` elements.
    pub(crate) fn space(
        &self,
        dims: cl_uint,
        offset: Option<&[usize]>,
        global: Option<&[usize]>,
        local: Option<&[usize]>,
    ) -> ClResult<IndexSpace> {
        // "CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and
        // CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS)."
        require(dims >= 1 && dims <= self.dims, CL_INVALID_WORK_DIMENSION)?;
        let zeros = [0; 3];
        // "If global_work_size is NULL, or the value in any passed dimension is 0 then the kernel
        // command will trivially succeed"; before OpenCL 2.1 "CL_INVALID_GLOBAL_WORK_SIZE".
        let global = global.unwrap_or(&zeros[..dims as usize]);
        require(self.empty || !global.contains(&0), CL_INVALID_GLOBAL_WORK_SIZE)?;
        let mut space = IndexSpace { dims, offset: [0; 3], global: [1; 3], local: None };
        for (axis, size) in global.iter().enumerate() {
            // "CL_INVALID_GLOBAL_WORK_SIZE if any of the values specified in global_work_size[0],
            // ... exceed the maximum value representable by size_t on the device on which the
            // kernel will be enqueued."
            require(*size as u64 <= self.address, CL_INVALID_GLOBAL_WORK_SIZE)?;
            space.global[axis] = *size as u64;
        }
        for (axis, start) in offset.unwrap_or_default().iter().enumerate() {
            // "CL_INVALID_GLOBAL_OFFSET if the value specified in global_work_size + the
            // corresponding values in global_work_offset for any dimensions is greater than the
            // maximum value representable by size t on the device".
            let end = (*start as u64).checked_add(space.global[axis]);
            require(end.is_some_and(|end| end <= self.address), CL_INVALID_GLOBAL_OFFSET)?;
            space.offset[axis] = *start as u64;
        }
        space.local = match local {
            Some(local) => Some(checked_local(self, global, local)?),
            // A kernel compiled for a size runs with that size; not all drivers do this.
            None if self.required.contains(&0) => None,
            None => Some(checked_local(self, global, &self.required[..dims as usize])?),
        };
        Ok(space)
    }
}

fn checked_local(limits: &Limits, global: &[usize], local: &[usize]) -> ClResult<[u64; 3]> {
    let mut checked = [1; 3];
    let mut group = 1usize;
    for (axis, (size, global)) in local.iter().zip(global).enumerate() {
        // "CL_INVALID_WORK_GROUP_SIZE if local_work_size is specified and ... is 0": no work-group
        // is empty.
        require(*size > 0, CL_INVALID_WORK_GROUP_SIZE)?;
        // "CL_INVALID_WORK_ITEM_SIZE if the number of work-items specified in any of
        // local_work_size[0], ... is greater than the corresponding values specified by
        // CL_DEVICE_MAX_WORK_ITEM_SIZES".
        require(*size <= limits.items[axis], CL_INVALID_WORK_ITEM_SIZE)?;
        // "CL_INVALID_WORK_GROUP_SIZE if the work-group size must be uniform and the
        // local_work_size is not NULL, ... if the global_work_size is not evenly divisible by the
        // local_work_size."
        require(limits.not_uniform || global % size == 0, CL_INVALID_WORK_GROUP_SIZE)?;
        group = group.checked_mul(*size).ok_or(ClError(CL_INVALID_WORK_GROUP_SIZE))?;
        checked[axis] = *size as u64;
    }
    // "CL_INVALID_WORK_GROUP_SIZE if local_work_size is specified and the total number of
    // work-items in the work-group ... is greater than the value specified by
    // CL_KERNEL_WORK_GROUP_SIZE".
    require(group <= limits.group, CL_INVALID_WORK_GROUP_SIZE)?;
    // "CL_INVALID_WORK_GROUP_SIZE if local_work_size is specified and does not match the required
    // work-group size for kernel in the program source."
    let matches = limits.required.contains(&0) || checked == limits.required.map(|n| n as u64);
    require(matches, CL_INVALID_WORK_GROUP_SIZE)?;
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        dims: 3,
        items: [64, 64, 8],
        group: 128,
        required: [0; 3],
        local: LocalMemory { declared: 1000, most: 1024 },
        address: u64::MAX,
        not_uniform: false,
        empty: true,
    };

    fn code(
        limits: &Limits,
        dims: u32,
        offset: Option<&[usize]>,
        global: &[usize],
        local: Option<&[usize]>,
    ) -> i32 {
        limits.space(dims, offset, Some(global), local).err().map_or(0, |error| error.0)
    }

    #[test]
    fn dimensions_that_are_not_given_are_1() {
        let range = LIMITS.space(2, Some(&[3, 4]), Some(&[64, 32]), Some(&[8, 4])).unwrap();
        let local = Some([8, 4, 1]);
        assert_eq!(range, IndexSpace { dims: 2, offset: [3, 4, 0], global: [64, 32, 1], local });
        assert!(!range.is_empty());
    }

    #[test]
    fn each_wrong_number_has_its_code() {
        assert_eq!(code(&LIMITS, 0, None, &[], None), CL_INVALID_WORK_DIMENSION);
        assert_eq!(code(&LIMITS, 4, None, &[1; 4], None), CL_INVALID_WORK_DIMENSION);
        assert_eq!(code(&LIMITS, 1, None, &[10], Some(&[3])), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(&LIMITS, 1, None, &[10], Some(&[0])), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(&LIMITS, 3, None, &[16; 3], Some(&[1, 1, 16])), CL_INVALID_WORK_ITEM_SIZE);
        assert_eq!(code(&LIMITS, 2, None, &[64; 2], Some(&[16, 16])), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(&LIMITS, 1, Some(&[usize::MAX]), &[10], None), CL_INVALID_GLOBAL_OFFSET);
        let narrow = Limits { address: u64::from(u32::MAX), ..LIMITS };
        assert_eq!(code(&narrow, 1, None, &[1 << 33], None), CL_INVALID_GLOBAL_WORK_SIZE);
        assert_eq!(code(&narrow, 1, Some(&[1 << 31]), &[1 << 31], None), CL_INVALID_GLOBAL_OFFSET);
    }

    #[test]
    fn local_memory_is_what_the_kernel_declares_and_its_arguments() {
        let code = |args| LIMITS.local.check(args).err().map_or(0, |error| error.0);
        assert_eq!(
            [code(0), code(24), code(25), code(u64::MAX)],
            [0, 0, CL_OUT_OF_RESOURCES, CL_OUT_OF_RESOURCES]
        );
    }

    #[test]
    fn nothing_to_run_is_no_error_since_2_1() {
        assert!(LIMITS.space(1, None, None, None).unwrap().is_empty());
        let old = Limits { empty: false, ..LIMITS };
        assert_eq!(code(&old, 2, None, &[4, 0], None), CL_INVALID_GLOBAL_WORK_SIZE);
    }

    #[test]
    fn a_required_size_is_taken_or_checked() {
        let fixed = Limits { required: [8, 2, 1], ..LIMITS };
        let range = fixed.space(2, None, Some(&[16, 4]), None).unwrap();
        assert_eq!(range.local, Some([8, 2, 1]));
        assert_eq!(code(&fixed, 2, None, &[16, 4], Some(&[4, 2])), CL_INVALID_WORK_GROUP_SIZE);
        assert_eq!(code(&fixed, 2, None, &[16, 4], Some(&[8, 2])), 0);
    }

    #[test]
    fn the_rest_may_be_smaller_where_that_is_allowed() {
        let loose = Limits { not_uniform: true, ..LIMITS };
        assert_eq!(code(&loose, 1, None, &[10], Some(&[3])), 0);
    }
}
