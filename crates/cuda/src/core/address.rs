//! Where a device's memory lies in the 64-bit address space.
//!
//! We choose the device addresses: a kernel gets the arenas as arguments and translates each
//! address to an offset in one of them. Device addresses lie where no process has memory, so an
//! address belongs either to the host or to one device.

/// Above the 2^47 bytes that a process can use, and below the windows of shared and local memory,
/// which begin at 2^56.
const BASE: u64 = 0x0007_0000_0000_0000;

/// Each device has 4 TiB of addresses, more than any device has memory.
const DEVICE_SHIFT: u32 = 42;

/// Number of devices that fit between the base and 2^51: eight times the largest node that is sold.
pub(crate) const DEVICES_MAX: usize = 64;

/// Arenas begin at multiples of this number of bytes, the largest page size. So the end of one
/// arena and the start of the next never share a page.
const ARENA_STEP: u64 = 2 << 20;

/// Returns the first address of a device.
pub(crate) const fn first(device: usize) -> u64 {
    BASE + ((device as u64) << DEVICE_SHIFT)
}

/// Returns the device that an address belongs to, or `None` for an address of the host.
pub(crate) fn device_of(address: u64) -> Option<usize> {
    let device = usize::try_from(address.checked_sub(BASE)? >> DEVICE_SHIFT).ok()?;
    (device < DEVICES_MAX).then_some(device)
}

/// Returns where the next arena begins if the last one ends at `end`. A gap separates the two, so
/// an access past the end of an arena hits no arena.
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
        // The highest address of a process, the window of shared memory, and null.
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
