//! Reserves the addresses that a native driver chose for device memory, so that this process maps
//! nothing else there and each address identifies the host or one device.

use std::collections::BTreeMap;
use std::ops::Range;

use penstock_process::Lock;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// End of the addresses that a process can use.
const PROCESS_END: u64 = 1 << 47;
/// The smallest unit that can be mapped.
const PAGE_BYTES: u64 = 4096;

/// Reserved pages, which do not overlap. Key: first address. Value: end and device.
static RESERVED: Lock<BTreeMap<usize, (usize, u64)>> = Lock::new(BTreeMap::new());

/// Returns the addresses from `start` to `end` as a range.
fn pages(start: u64, end: u64) -> Option<Range<usize>> {
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// Reserves the pages that hold `size` bytes at `base` for a device. Returns false if the program
/// or another device uses one of them. The device may already hold some of the pages: a driver may
/// place a variable beside an allocation.
pub(crate) fn reserve(device: u64, base: u64, size: u64) -> bool {
    if base >= PROCESS_END {
        return true;
    }
    let start = base / PAGE_BYTES * PAGE_BYTES;
    let end = base.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
    let Some(wanted) = end.and_then(|end| pages(start, end)) else { return false };
    let mut held = RESERVED.lock();
    let mut gaps = Vec::new();
    let mut at = wanted.start;
    for (start, (end, owner)) in
        held.range(..wanted.end).filter(|(_, (end, _))| *end > wanted.start)
    {
        if *owner != device {
            return false;
        }
        if at < *start {
            gaps.push(at..*start);
        }
        at = *end;
    }
    if at < wanted.end {
        gaps.push(at..wanted.end);
    }
    for (index, gap) in gaps.iter().enumerate() {
        if !map(gap) {
            gaps.iter().take(index).for_each(unmap);
            return false;
        }
    }
    held.extend(gaps.into_iter().map(|gap| (gap.start, (gap.end, device))));
    true
}

/// Releases the pages that lie completely within these bytes, because the device no longer uses
/// them. The pages at both ends may hold other data of the device.
pub(crate) fn release(device: u64, base: u64, size: u64) {
    if base >= PROCESS_END {
        return;
    }
    let start = base.next_multiple_of(PAGE_BYTES);
    let Some(within) = pages(start, base.saturating_add(size) / PAGE_BYTES * PAGE_BYTES) else {
        return;
    };
    let mut held = RESERVED.lock();
    let known = held
        .range(..within.end)
        .filter(|(_, (end, owner))| *end > within.start && *owner == device);
    let known: Vec<_> = known.map(|(start, (end, _))| *start..*end).collect();
    for known in known {
        held.remove(&known.start);
        let gone = known.start.max(within.start)..known.end.min(within.end);
        unmap(&gone);
        for rest in [known.start..gone.start, gone.end..known.end]
            .into_iter()
            .filter(|rest| !rest.is_empty())
        {
            held.insert(rest.start, (rest.end, device));
        }
    }
}

/// Maps pages without access rights. Fails if any of them is already mapped.
fn map(pages: &Range<usize>) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let start = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: `FIXED_NOREPLACE` makes the call fail if anything is mapped there, and nobody can
    // access the new pages.
    let mapped = unsafe { mmap_anonymous(start, pages.len(), ProtFlags::empty(), flags) };
    mapped.is_ok_and(|mapped| mapped.addr() == pages.start)
}

fn unmap(pages: &Range<usize>) {
    let start = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: `map` made these pages, and nobody can access them.
    _ = unsafe { munmap(start, pages.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_the_program_uses_are_not_taken() {
        let own = vec![1_u8; 1 << 20];
        let address = own.as_ptr().addr() as u64;
        assert!(!reserve(1, address, 1 << 20));
        assert_eq!(own[4096], 1);
        // Above the addresses of processes nothing is mapped, so every request succeeds.
        assert!(reserve(1, 1 << 50, 1 << 20));
    }

    #[test]
    fn a_device_may_have_two_things_in_one_page_and_another_device_not() {
        // An address where the process has mapped nothing.
        let base = 0x1234_5000_0000;
        assert!(reserve(1, base + 16, 4));
        assert!(reserve(1, base + 64, 4));
        assert!(!reserve(2, base + 128, 4));
        // A range that surrounds the device's pages overlaps them without an error.
        assert!(reserve(1, base - 8192, 5 * 4096));
        assert!(!reserve(2, base + 2 * 4096, 4096));
        // Only the pages that lie completely within the range are released.
        release(1, base - 8000, 5 * 4096 - 200);
        assert!(!reserve(2, base - 8192, 4096) && !reserve(2, base + 2 * 4096, 4096));
        assert!(reserve(2, base - 4096, 3 * 4096));
        assert!(!reserve(1, base, 4));
    }
}
