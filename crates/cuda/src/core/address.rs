//! Where in the 64-bit space of addresses a device's memory lies.
//!
//! Device addresses are our own invention: a kernel gets the arenas as arguments and turns an address into one of them. They
//! lie where no process has memory, so that one address is either the host's or one device's.

/// Above the 2^47 bytes that a process has, below the windows of shared and local memory, which begin at 2^56.
const BASE: u64 = 0x0007_0000_0000_0000;

/// Each device has 4 TiB of addresses: more than devices have memory.
const DEVICE_SHIFT: u32 = 42;

/// Devices that fit between the base and 2^51, eight times the largest single node that is sold.
pub(crate) const DEVICES_MAX: usize = 64;

/// Arenas begin at multiples of this. One page of the largest kind, so that neither alignment nor the end of one arena meets
/// the next.
const ARENA_STEP: u64 = 2 << 20;

/// The first address of a device.
pub(crate) const fn first(device: usize) -> u64 {
    BASE + ((device as u64) << DEVICE_SHIFT)
}

/// The device that an address belongs to; none for an address of the host.
pub(crate) fn device_of(address: u64) -> Option<usize> {
    let device = usize::try_from(address.checked_sub(BASE)? >> DEVICE_SHIFT).ok()?;
    (device < DEVICES_MAX).then_some(device)
}

/// Where the next arena begins if the last one ends at `end`: not right behind it, so that running over the end of one is an
/// address of nobody.
pub(crate) const fn next_arena(end: u64) -> u64 {
    (end / ARENA_STEP + 2) * ARENA_STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_their_device() {
        for device in [0, 1, DEVICES_MAX - 1] {
            assert_eq!(device_of(first(device)), Some(device));
            assert_eq!(device_of(first(device) + (1 << DEVICE_SHIFT) - 1), Some(device));
        }
        assert_eq!(device_of(first(DEVICES_MAX)), None);
        // The highest address of a process, and the window of shared memory.
        assert_eq!(
            (device_of(0x7fff_ffff_ffff), device_of(1 << 56), device_of(0)),
            (None, None, None)
        );
    }

    #[test]
    fn arenas_do_not_touch() {
        for end in [1, ARENA_STEP - 1, ARENA_STEP, ARENA_STEP + 1] {
            let next = next_arena(first(0) + end);
            assert!(next > first(0) + end + ARENA_STEP - 1 && next.is_multiple_of(ARENA_STEP));
        }
    }
}
