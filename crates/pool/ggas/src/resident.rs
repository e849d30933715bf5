//! The check whether kernels that wait for each other can all run at the same time. A work-group
//! never starts if all cores run work-groups that wait for it; such a launch is refused.

use penstock_cl_sys::{CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_NAME, CL_DEVICE_VERSION};

/// One device of a collective launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchDevice<P> {
    /// Devices with equal values share threads: those of one platform in one process.
    pub thread_pool: P,
    /// Number of work-groups that the device runs at the same time, from [`resident_groups`].
    pub groups_max: u64,
    /// The same for the whole device if this is a sub-device; equal otherwise.
    pub groups_max_whole: u64,
}

/// Reason why the work-groups of a collective launch cannot all run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "PE {pe} has more work-groups than run at a time ({groups_max}); devices of the launch that share its threads: {sharing}"
)]
pub struct NotResident {
    /// Index of a device whose work-groups do not fit.
    pub pe: usize,
    /// Number of devices of the launch that share its threads, itself included.
    pub sharing: u64,
    /// Work-groups that run at the same time: on the device if its own exceed that number,
    /// otherwise on all devices that share its threads.
    pub groups_max: u64,
}

/// Checks that `groups` work-groups on each of these devices can all run at the same time.
///
/// Devices of one platform in one process share its threads: PoCL has one pool of threads, however
/// many devices it shows. So the sum over these devices must not exceed their largest number of
/// threads, and no device runs more than its own number.
///
/// # Errors
/// [`NotResident`] for the first device with too many work-groups.
pub fn check_resident<P: PartialEq>(
    devices: &[LaunchDevice<P>],
    groups: u64,
) -> Result<(), NotResident> {
    for (pe, device) in devices.iter().enumerate() {
        let together = || devices.iter().filter(|other| other.thread_pool == device.thread_pool);
        let sharing = together().count() as u64;
        let groups_max_shared = together().map(|other| other.groups_max_whole).max().unwrap_or(0);
        if groups > device.groups_max {
            return Err(NotResident { pe, sharing, groups_max: device.groups_max });
        }
        if groups.saturating_mul(sharing) > groups_max_shared {
            return Err(NotResident { pe, sharing, groups_max: groups_max_shared });
        }
    }
    Ok(())
}

/// Returns how many work-groups a device certainly runs at the same time. `info` returns answers of
/// `clGetDeviceInfo` by name. PoCL gives each of its threads one work-group. Intel's runtime has
/// run two work-groups on two units in sequence, so for other drivers only one is certain.
pub fn resident_groups<'a>(info: impl Fn(u32) -> Option<&'a [u8]>) -> u64 {
    let text = |name| String::from_utf8_lossy(info(name).unwrap_or_default()).to_ascii_lowercase();
    // With oneTBB PoCL lets that library decide what runs where.
    if !text(CL_DEVICE_VERSION).contains("pocl") || text(CL_DEVICE_NAME).contains("tbb") {
        return 1;
    }
    let bytes = info(CL_DEVICE_MAX_COMPUTE_UNITS).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(1, |bytes| u32::from_ne_bytes(*bytes).max(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of(version: &str, name: &str, units: Option<u32>) -> u64 {
        let units = units.map(u32::to_ne_bytes);
        resident_groups(|asked| match asked {
            CL_DEVICE_VERSION => Some(version.as_bytes()),
            CL_DEVICE_NAME => Some(name.as_bytes()),
            CL_DEVICE_MAX_COMPUTE_UNITS => units.as_ref().map(|bytes| bytes.as_slice()),
            _ => None,
        })
    }

    fn device<P>(thread_pool: P, groups_max: u64) -> LaunchDevice<P> {
        LaunchDevice { thread_pool, groups_max, groups_max_whole: groups_max }
    }

    #[test]
    fn pocl_runs_one_work_group_on_each_of_its_threads() {
        assert_eq!(groups_of("OpenCL 3.0 PoCL HSTR: pthread\0", "cores\0", Some(4)), 4);
        assert_eq!(groups_of("OpenCL 1.2 pocl HSTR: pthread\0", "cores\0", Some(4)), 4);
        assert_eq!(groups_of("OpenCL 3.0 PoCL HSTR: pthread\0", "cores\0", Some(0)), 1);
        assert_eq!(groups_of("OpenCL 3.0 PoCL HSTR: pthread\0", "cores\0", None), 1);
    }

    #[test]
    fn of_other_drivers_one_work_group_is_certain() {
        assert_eq!(groups_of("OpenCL 3.0 LINUX\0", "cores\0", Some(4)), 1);
        assert_eq!(groups_of("OpenCL 3.0 PoCL HSTR: tbb\0", "cpu-TBB\0", Some(4)), 1);
    }

    #[test]
    fn as_many_work_groups_as_a_device_runs_fit_and_one_more_does_not() {
        let devices = [device('A', 4)];
        assert_eq!(check_resident(&devices, 4), Ok(()));
        assert_eq!(
            check_resident(&devices, 5),
            Err(NotResident { pe: 0, sharing: 1, groups_max: 4 })
        );
    }

    #[test]
    fn devices_of_one_place_share_its_threads() {
        let same = [device('A', 4), device('A', 4)];
        assert_eq!(check_resident(&same, 2), Ok(()));
        assert_eq!(check_resident(&same, 3), Err(NotResident { pe: 0, sharing: 2, groups_max: 4 }));
        assert_eq!(
            check_resident(&[device('A', 4), device('B', 4)], 4),
            Ok(()),
            "places of their own"
        );
    }

    #[test]
    fn a_device_runs_no_more_than_its_own_however_many_its_place_does() {
        let devices = [device('A', 4), device('A', 1)];
        assert_eq!(
            check_resident(&devices, 2),
            Err(NotResident { pe: 1, sharing: 2, groups_max: 1 })
        );
    }

    #[test]
    fn parts_of_a_device_share_what_the_whole_has() {
        let part = LaunchDevice { thread_pool: 'A', groups_max: 2, groups_max_whole: 4 };
        assert_eq!(check_resident(&[part, part], 2), Ok(()));
        assert_eq!(
            check_resident(&[part; 3], 2),
            Err(NotResident { pe: 0, sharing: 3, groups_max: 4 })
        );
        assert_eq!(
            check_resident(&[part], 3),
            Err(NotResident { pe: 0, sharing: 1, groups_max: 2 })
        );
    }
}
