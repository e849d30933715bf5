//! Whether kernels that wait for each other can all run at the same time. A work-group that has not started, because all cores have
//! one that waits for it, never starts: such a launch is refused before it hangs.

use crate::command::{DeviceInfo, Range, Rank};
use crate::error::Error;

/// `CL_DEVICE_MAX_COMPUTE_UNITS`: so many work-groups PoCL's devices run at the same time.
const CL_DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
/// `CL_DEVICE_NAME`.
const CL_DEVICE_NAME: u32 = 0x102B;
/// `CL_DEVICE_VERSION`.
const CL_DEVICE_VERSION: u32 = 0x102F;

/// One device of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// Its rank.
    pub rank: Rank,
    /// What it says of itself.
    pub info: &'a DeviceInfo,
}

/// Checks that the work-groups of one launch, the same for all these devices, can all run at the same time.
///
/// Devices of one platform in one process share its threads: PoCL has one pool of them, however many devices it shows. So what counts is the
/// sum over them, and the largest of their numbers of compute units. Devices of the pool's nodes are in processes of their own.
///
/// # Errors
/// [`Error::Resident`] with the numbers; [`Error::Invalid`] without a local size, because only that says how many work-groups there are, and
/// without work-items.
pub fn check(seats: &[Seat<'_>], range: &Range) -> Result<(), Error> {
    let groups = groups(range)?;
    if groups == 0 {
        return Err(Error::Invalid(
            "a collective launch of no work-items would leave its kernels nobody to meet".into(),
        ));
    }
    for (place, seat) in seats.iter().enumerate() {
        let shares = |other: &&Seat<'_>| {
            other.rank == seat.rank
                && other.info.platform == seat.info.platform
                && other.info.in_pool.map(|it| it.node) == seat.info.in_pool.map(|it| it.node)
        };
        let together: Vec<_> = seats.iter().filter(shares).collect();
        let (count, units) = (
            together.len() as u64,
            together.iter().map(|seat| resident_groups(seat.info)).max().unwrap_or(0),
        );
        let wanted = groups.saturating_mul(count);
        if wanted > units {
            let name = text(seat.info, CL_DEVICE_NAME);
            let beside = if count > 1 {
                format!(", and {count} devices of the launch share its threads, which makes {wanted}")
            } else {
                String::new()
            };
            return Err(Error::Resident(format!(
                "the launch has {groups} work-groups for each device{beside}; but PE {place} ({name}, rank {}) runs {units} at the same \
                 time, so some would wait for others that never start. Use larger or fewer work-groups",
                seat.rank
            )));
        }
    }
    Ok(())
}

/// Work-groups of a launch.
fn groups(range: &Range) -> Result<u64, Error> {
    let local = range.local.ok_or_else(|| {
        Error::Invalid(
            "a collective launch needs a local work size: it says how many work-groups there are".into(),
        )
    })?;
    let mut groups = 1_u64;
    for (global, local) in range.global.iter().zip(local).take(range.dims as usize) {
        if local == 0 || !global.is_multiple_of(local) {
            return Err(Error::Invalid(format!(
                "the global work size {global} is no multiple of the local work size {local}"
            )));
        }
        groups = groups.saturating_mul(global / local);
    }
    Ok(groups)
}

/// Work-groups that a device runs at the same time for sure. PoCL gives each of its threads one while there are no more than threads;
/// Intel's runtime was seen to run two work-groups on two units one after the other, so of other drivers one is all that is known.
fn resident_groups(info: &DeviceInfo) -> u64 {
    let (version, name) = (text(info, CL_DEVICE_VERSION), text(info, CL_DEVICE_NAME));
    let is = |text: &str, what| text.to_ascii_lowercase().contains(what);
    // With oneTBB PoCL leaves it to that what runs where.
    if !(is(&version, "pocl") || is(&info.platform_version, "pocl")) || is(&name, "tbb") {
        return 1;
    }
    let value = info.info.iter().find(|(name, _)| *name == CL_DEVICE_MAX_COMPUTE_UNITS);
    let bytes = value.and_then(|(_, bytes)| bytes.first_chunk::<4>());
    bytes.map_or(1, |bytes| u32::from_ne_bytes(*bytes).max(1).into())
}

fn text(info: &DeviceInfo, name: u32) -> String {
    let value = info.info.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_slice());
    String::from_utf8_lossy(value.unwrap_or_default()).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(platform: &str, units: u32) -> DeviceInfo {
        DeviceInfo {
            info: vec![
                (CL_DEVICE_NAME, b"cores\0".to_vec()),
                (CL_DEVICE_MAX_COMPUTE_UNITS, units.to_ne_bytes().to_vec()),
            ],
            platform: platform.into(),
            platform_version: "OpenCL 3.0 PoCL 3.1".into(),
            hostname: String::new(),
            in_pool: None,
        }
    }

    fn range(global: u64, local: u64) -> Range {
        Range { dims: 1, offset: [0; 3], global: [global, 1, 1], local: Some([local, 1, 1]) }
    }

    fn is_refused(seats: &[Seat<'_>], range: &Range) -> bool {
        matches!(check(seats, range), Err(Error::Resident(_)))
    }

    #[test]
    fn as_many_work_groups_as_cores_run_and_one_more_does_not() {
        let info = device("A", 4);
        let seats = [Seat { rank: 0, info: &info }];
        assert!(check(&seats, &range(256, 64)).is_ok());
        assert!(is_refused(&seats, &range(320, 64)));
    }

    #[test]
    fn of_other_drivers_one_work_group_is_certain() {
        let intel = DeviceInfo { platform_version: "OpenCL 3.0 LINUX".into(), ..device("B", 4) };
        let mut tbb = device("A", 4);
        tbb.info[0].1 = b"cpu-TBB\0".to_vec();
        for info in [&intel, &tbb] {
            let seats = [Seat { rank: 0, info }];
            assert!(check(&seats, &range(64, 64)).is_ok());
            assert!(is_refused(&seats, &range(128, 64)));
        }
    }

    #[test]
    fn devices_of_one_platform_in_one_process_share_its_threads() {
        let (info, other) = (device("A", 4), device("B", 4));
        let same = [Seat { rank: 0, info: &info }, Seat { rank: 0, info: &info }];
        assert!(check(&same, &range(128, 64)).is_ok());
        assert!(is_refused(&same, &range(192, 64)));
        let ranks = [Seat { rank: 0, info: &info }, Seat { rank: 1, info: &info }];
        assert!(check(&ranks, &range(256, 64)).is_ok(), "processes of their own");
        let platforms = [Seat { rank: 0, info: &info }, Seat { rank: 0, info: &other }];
        assert!(check(&platforms, &range(256, 64)).is_ok(), "platforms of their own");
    }

    #[test]
    fn the_refusal_says_which_device_and_which_numbers() {
        let info = device("A", 2);
        let text = check(&[Seat { rank: 5, info: &info }], &range(192, 64)).unwrap_err().to_string();
        for part in ["3 work-groups", "PE 0", "cores", "rank 5", "runs 2"] {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
    }

    #[test]
    fn without_a_local_size_nobody_knows_how_many_work_groups_there_are() {
        let info = device("A", 2);
        let seats = [Seat { rank: 0, info: &info }];
        assert!(matches!(check(&seats, &Range { local: None, ..range(64, 64) }), Err(Error::Invalid(_))));
        assert!(matches!(check(&seats, &range(65, 64)), Err(Error::Invalid(_))));
        assert!(matches!(check(&seats, &range(64, 0)), Err(Error::Invalid(_))));
        assert!(matches!(check(&seats, &range(0, 64)), Err(Error::Invalid(_))), "no work-items at all");
    }
}
