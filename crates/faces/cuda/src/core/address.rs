//! Where a device's memory lies in the 64-bit address space.
//!
//! We choose the device addresses: a kernel gets the arenas as arguments and translates each
//! address to an offset in one of them. An address belongs either to the host or to one device:
//! device addresses lie in a window of this process that is reserved for the device, or where no
//! process has memory.

/// Above the 2^47 bytes that a process can use, and below the windows of shared and local memory,
/// which begin at 2^56.
const BASE: u64 = 0x0007_0000_0000_0000;

/// First window. Programs, their heaps, libraries and stacks lie elsewhere: a program with a fixed
/// address lies below 2^32, all others above 0x5000_0000_0000. Both are so far away that a kernel
/// which takes an address of the host for one of the device reaches memory that no worker has
/// mapped, and faults.
const WINDOWS: u64 = 0x0800_0000_0000;

/// Number of devices that have a window. The last window ends at 0x4800_0000_0000.
const WINDOWS_MAX: usize = 16;

/// Each device has 4 TiB of addresses, more than any device has memory.
const DEVICE_SHIFT: u32 = 42;

/// Number of devices that fit between the base and 2^51: eight times the largest node that is sold.
pub(crate) const DEVICES_MAX: usize = 64;

/// Arenas begin at multiples of this number of bytes, the largest page size. So the end of one
/// arena and the start of the next never share a page.
const ARENA_STEP: u64 = 2 << 20;

/// Returns the first address of a device that has no window.
pub(crate) const fn first(device: usize) -> u64 {
    BASE + ((device as u64) << DEVICE_SHIFT)
}

/// Returns the first address of a device's window in this process.
pub(crate) fn window(device: usize) -> Option<u64> {
    (device < WINDOWS_MAX).then(|| WINDOWS + ((device as u64) << DEVICE_SHIFT))
}

/// Returns the device that an address belongs to if it belongs to any device. An address in a
/// window belongs to the host unless the window is reserved for the device.
pub(crate) fn device_of(address: u64) -> Option<usize> {
    let within = |start: u64, count: usize| {
        let device = usize::try_from(address.checked_sub(start)? >> DEVICE_SHIFT).ok()?;
        (device < count).then_some(device)
    };
    within(BASE, DEVICES_MAX).or_else(|| within(WINDOWS, WINDOWS_MAX))
}

/// Returns where the next arena begins if the last one ends at `end`. A gap separates the two, so
/// an access past the end of an arena hits no arena.
pub(crate) const fn next_arena(end: u64) -> u64 {
    (end / ARENA_STEP + 2) * ARENA_STEP
}

/// Returns how many addresses arenas of `total` bytes together take, if there are at most `count`.
pub(crate) const fn span(total: u64, count: usize) -> u64 {
    total + 2 * ARENA_STEP * count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_their_device() {
        for device in [0, 1, DEVICES_MAX - 1] {
            assert_eq!(device_of(first(device)), Some(device));
            assert_eq!(device_of(first(device) + (1 << DEVICE_SHIFT) - 1), Some(device));
            if let Some(start) = window(device) {
                assert_eq!(device_of(start), Some(device));
                assert_eq!(device_of(start + (1 << DEVICE_SHIFT) - 1), Some(device));
                // No program, heap or library begins there.
                assert!(start > 1 << 42 && start + (1 << DEVICE_SHIFT) < 0x5555_5555_4000);
            }
        }
        assert_eq!(window(WINDOWS_MAX), None);
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
