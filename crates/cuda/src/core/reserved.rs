//! Addresses of devices whose driver chooses them: they are taken out of use in this process, so that each address says whether it is the
//! host's or a device's, and which.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Where no process has memory.
const PROCESS_END: u64 = 1 << 47;
/// The smallest page: what can be mapped.
const PAGE_BYTES: u64 = 4096;

/// Pages that are held, by their first address: the last one's end, and the device. They do not overlap.
static HELD: Mutex<BTreeMap<usize, (usize, u64)>> = Mutex::new(BTreeMap::new());

/// The pages from the one with `start` to the one before `end`.
fn pages(start: u64, end: u64) -> Option<Range<usize>> {
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// Holds the pages of some bytes for a device. False where something else is there: the program's memory, or another device's. Pages
/// that the device has already are fine: a driver may put a variable beside an allocation.
pub(crate) fn reserve(device: u64, base: u64, size: u64) -> bool {
    if base >= PROCESS_END {
        return true;
    }
    let start = base / PAGE_BYTES * PAGE_BYTES;
    let end = base.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
    let Some(wanted) = end.and_then(|end| pages(start, end)) else { return false };
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Lets go of the pages that lie within some bytes: the device has nothing there any more. What else it has may be in the pages at
/// both ends.
pub(crate) fn release(device: u64, base: u64, size: u64) {
    if base >= PROCESS_END {
        return;
    }
    let start = base.next_multiple_of(PAGE_BYTES);
    let Some(within) = pages(start, base.saturating_add(size) / PAGE_BYTES * PAGE_BYTES) else {
        return;
    };
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Maps pages that nobody can touch, where nothing is.
fn map(pages: &Range<usize>) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let place = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: where anything is mapped the call fails; what it maps nobody can touch.
    let mapped = unsafe { mmap_anonymous(place, pages.len(), ProtFlags::empty(), flags) };
    mapped.is_ok_and(|mapped| mapped.addr() == pages.start)
}

fn unmap(pages: &Range<usize>) {
    let place = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: pages that `map` has made, which nobody can touch.
    _ = unsafe { munmap(place, pages.len()) };
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
        // Above what any process has, as our own devices' are.
        assert!(reserve(1, 1 << 50, 1 << 20));
    }

    #[test]
    fn a_device_may_have_two_things_in_one_page_and_another_device_not() {
        // Where a process has nothing by itself.
        let base = 0x1234_5000_0000;
        assert!(reserve(1, base + 16, 4));
        assert!(reserve(1, base + 64, 4));
        assert!(!reserve(2, base + 128, 4));
        // Around what it has, and beside.
        assert!(reserve(1, base - 8192, 5 * 4096));
        assert!(!reserve(2, base + 2 * 4096, 4096));
        // What lies wholly within is given back, the pages at the ends are not.
        release(1, base - 8000, 5 * 4096 - 200);
        assert!(!reserve(2, base - 8192, 4096) && !reserve(2, base + 2 * 4096, 4096));
        assert!(reserve(2, base - 4096, 3 * 4096));
        assert!(!reserve(1, base, 4));
    }
}
