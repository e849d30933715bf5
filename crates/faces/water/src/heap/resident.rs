//! Checks that kernels that wait for each other can all run at the same time. If the work-groups on
//! all cores wait for another work-group that has not started, no core becomes free for it, and the
//! launch hangs. Such a launch is refused.

use penstock_ggas::{NotResident, check_resident, resident_groups};

use crate::command::{DeviceInfo, IndexSpace, Rank};
use crate::error::Error;

/// A device of a launch.
#[derive(Clone, Copy, Debug)]
pub struct PeDevice<'a> {
    pub rank: Rank,
    pub info: &'a DeviceInfo,
}

/// The threads of a device. Devices with equal values share their threads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ThreadPool<'a> {
    rank: Rank,
    platform: &'a str,
    /// Node of the pool, if the device is in a pool.
    node: Option<u32>,
}

impl PeDevice<'_> {
    /// Returns what the device runs at a time. Each node of the pool has its own process.
    fn capacity(&self) -> penstock_ggas::LaunchDevice<ThreadPool<'_>> {
        let groups_max = resident_groups(|name| self.info.get(name));
        let node = self.info.in_pool.map(|it| it.node);
        penstock_ggas::LaunchDevice {
            thread_pool: ThreadPool { rank: self.rank, platform: &self.info.platform, node },
            groups_max,
            groups_max_whole: groups_max,
        }
    }
}

/// Checks that the work-groups of one launch, which is the same for all these devices, can all run
/// at the same time.
///
/// # Errors
/// [`Error::Resident`] with the numbers if they cannot. [`Error::Invalid`] if there are no
/// work-items, or no local size, without which the number of work-groups is not known.
pub fn check(devices: &[PeDevice<'_>], range: &IndexSpace) -> Result<(), Error> {
    let groups = groups(range)?;
    if groups == 0 {
        return Err(Error::Invalid("a collective launch needs at least one work-item".into()));
    }
    let capacities: Vec<_> = devices.iter().map(PeDevice::capacity).collect();
    check_resident(&capacities, groups).map_err(|refusal| not_resident(devices, groups, refusal))
}

fn not_resident(devices: &[PeDevice<'_>], groups: u64, refusal: NotResident) -> Error {
    let NotResident { pe, sharing, groups_max } = refusal;
    let (name, rank) =
        devices.get(pe).map_or_else(Default::default, |device| (device.info.name(), device.rank));
    let beside = if sharing > 1 {
        let wanted = groups.saturating_mul(sharing);
        format!(", and {sharing} devices of the launch share its threads, which makes {wanted}")
    } else {
        String::new()
    };
    Error::Resident(format!(
        "the launch has {groups} work-groups for each device{beside}; but PE {pe} ({name}, rank {rank}) runs {groups_max} at the same \
         time, so some would wait for others that never start. Use larger or fewer work-groups"
    ))
}

/// Returns the number of work-groups of a launch.
fn groups(range: &IndexSpace) -> Result<u64, Error> {
    let (Some(groups), Some(local)) = (range.groups(), range.local()) else {
        return Err(Error::Invalid(
            "a collective launch needs a local work size: it says how many work-groups there are"
                .into(),
        ));
    };
    for (&global, &local) in range.global().iter().zip(local) {
        if local == 0 || !global.is_multiple_of(local) {
            return Err(Error::Invalid(format!(
                "the global work size {global} is not a multiple of the local work size {local}"
            )));
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use penstock_cl_sys::{CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_NAME, CL_DEVICE_VERSION};

    use super::*;

    fn device(platform: &str, units: u32) -> DeviceInfo {
        DeviceInfo {
            info: vec![
                (CL_DEVICE_NAME, b"cores\0".to_vec()),
                (CL_DEVICE_VERSION, b"OpenCL 3.0 PoCL HSTR: pthread\0".to_vec()),
                (CL_DEVICE_MAX_COMPUTE_UNITS, units.to_ne_bytes().to_vec()),
            ],
            platform: platform.into(),
            platform_version: String::new(),
            hostname: String::new(),
            in_pool: None,
        }
    }

    fn range(global: u64, local: u64) -> IndexSpace {
        IndexSpace::line(global, Some(local))
    }

    fn is_refused(devices: &[PeDevice<'_>], range: &IndexSpace) -> bool {
        matches!(check(devices, range), Err(Error::Resident(_)))
    }

    #[test]
    fn as_many_work_groups_as_cores_run_and_one_more_does_not() {
        let info = device("A", 4);
        let devices = [PeDevice { rank: 0, info: &info }];
        assert!(check(&devices, &range(256, 64)).is_ok());
        assert!(is_refused(&devices, &range(320, 64)));
    }

    #[test]
    fn devices_of_one_platform_in_one_process_share_its_threads() {
        let (info, other) = (device("A", 4), device("B", 4));
        let same = [PeDevice { rank: 0, info: &info }, PeDevice { rank: 0, info: &info }];
        assert!(check(&same, &range(128, 64)).is_ok());
        assert!(is_refused(&same, &range(192, 64)));
        let ranks = [PeDevice { rank: 0, info: &info }, PeDevice { rank: 1, info: &info }];
        assert!(check(&ranks, &range(256, 64)).is_ok(), "processes of their own");
        let platforms = [PeDevice { rank: 0, info: &info }, PeDevice { rank: 0, info: &other }];
        assert!(check(&platforms, &range(256, 64)).is_ok(), "platforms of their own");
    }

    #[test]
    fn the_refusal_says_which_device_and_which_numbers() {
        let info = device("A", 2);
        let text =
            check(&[PeDevice { rank: 5, info: &info }], &range(192, 64)).unwrap_err().to_string();
        for part in ["3 work-groups", "PE 0", "cores", "rank 5", "runs 2"] {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
    }

    #[test]
    fn without_a_local_size_nobody_knows_how_many_work_groups_there_are() {
        let info = device("A", 2);
        let devices = [PeDevice { rank: 0, info: &info }];
        assert!(matches!(
            check(&devices, &IndexSpace { local: None, ..range(64, 64) }),
            Err(Error::Invalid(_))
        ));
        assert!(matches!(check(&devices, &range(65, 64)), Err(Error::Invalid(_))));
        assert!(matches!(check(&devices, &range(64, 0)), Err(Error::Invalid(_))));
        assert!(
            matches!(check(&devices, &range(0, 64)), Err(Error::Invalid(_))),
            "no work-items at all"
        );
    }
}
