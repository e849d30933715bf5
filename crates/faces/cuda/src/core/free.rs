//! Free address ranges.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks of this size and more start at a page, as those of NVIDIA's driver do.
const LARGE_BYTES: u64 = 64 << 10;

const PAGE_BYTES: u64 = 4096;

/// Free ranges, by start and by size.
#[derive(Debug, Default)]
pub(super) struct FreeRanges {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeRanges {
    pub(super) fn add(&mut self, mut start: u64, mut size: u64) {
        if let Some((before, before_size)) =
            self.by_start.range(..start).next_back().map(|(a, b)| (*a, *b))
            && before + before_size == start
        {
            self.remove(before, before_size);
            (start, size) = (before, before_size + size);
        }
        if let Some(next_size) = self.by_start.get(&(start + size)).copied() {
            self.remove(start + size, next_size);
            size += next_size;
        }
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: u64, size: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// Takes `size` bytes for the program: many bytes start at a page if there is room for that.
    /// Small blocks may follow in the bytes in front of the page.
    pub(super) fn take_for_program(&mut self, size: u64) -> Option<u64> {
        if size < LARGE_BYTES {
            return self.take(size);
        }
        let roomy = size.saturating_add(PAGE_BYTES - 1);
        let fitting = [size, roomy].map(|least| self.by_size.range((least, 0)..).next().copied());
        for (found, start) in fitting.into_iter().flatten() {
            let page = start.next_multiple_of(PAGE_BYTES);
            if page + size <= start + found {
                return self.take_out(page, size).then_some(page);
            }
        }
        self.take(size)
    }

    /// Takes `size` bytes from the start of the smallest range that is large enough.
    pub(super) fn take(&mut self, size: u64) -> Option<u64> {
        let (found, start) = *self.by_size.range((size, 0)..).next()?;
        self.remove(start, found);
        if found > size {
            self.by_start.insert(start + size, found - size);
            self.by_size.insert((found - size, start + size));
        }
        Some(start)
    }

    /// Returns the free range that contains all of this one.
    fn around(&self, start: u64, size: u64) -> Option<(u64, u64)> {
        let (from, found) = self.by_start.range(..=start).next_back()?;
        (start + size <= from + found).then_some((*from, *found))
    }

    /// Returns whether all of a range is free.
    pub(super) fn has(&self, start: u64, size: u64) -> bool {
        self.around(start, size).is_some()
    }

    /// Removes exactly this range, if all of it is free. Returns whether it was.
    pub(super) fn take_out(&mut self, start: u64, size: u64) -> bool {
        let Some((from, found)) = self.around(start, size) else { return false };
        self.remove(from, found);
        for (start, end) in [(from, start), (start + size, from + found)] {
            if start < end {
                self.by_start.insert(start, end - start);
                self.by_size.insert((end - start, start));
            }
        }
        true
    }
}

#[cfg(test)]
impl FreeRanges {
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        self.by_start.iter().map(|(start, size)| (*start, *size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::core::block::GRAIN_BYTES;

    #[test]
    fn ranges_join_when_they_come_back() {
        let mut free = FreeRanges::default();
        free.add(0x1000, 0x1000);
        let parts: Vec<u64> = (0..4).map(|_| free.take(0x400).unwrap()).collect();
        assert_eq!(parts, [0x1000, 0x1400, 0x1800, 0x1c00]);
        assert_eq!(free.take(1), None);
        free.add(0x1400, 0x400);
        free.add(0x1c00, 0x400);
        assert_eq!(free.ranges(), [(0x1400, 0x400), (0x1c00, 0x400)]);
        free.add(0x1800, 0x400);
        assert_eq!(free.ranges(), [(0x1400, 0xc00)]);
        free.add(0x1000, 0x400);
        assert_eq!(free.ranges(), [(0x1000, 0x1000)]);
        assert_eq!(free.by_size.len(), 1);
    }

    #[test]
    fn a_part_is_taken_out_only_where_it_is_free() {
        let mut free = FreeRanges::default();
        free.add(0x1000, 0x3000);
        assert!(!free.take_out(0x800, 0x1000) && !free.take_out(0x3000, 0x2000));
        assert!(free.take_out(0x2000, 0x1000));
        assert_eq!(free.ranges(), [(0x1000, 0x1000), (0x3000, 0x1000)]);
        assert!(!free.take_out(0x2000, 0x100));
        assert!(free.take_out(0x1000, 0x1000) && free.take_out(0x3000, 0x800));
        assert_eq!(free.ranges(), [(0x3800, 0x800)]);
        assert_eq!(free.by_size.len(), 1);
    }

    #[test]
    fn large_ranges_start_at_pages_where_there_is_room() {
        let mut free = FreeRanges::default();
        free.add(0x100, 0x4_0000);
        assert_eq!(free.take_for_program(0x1_0000), Some(0x1000));
        assert_eq!(free.take_for_program(0xff00), Some(0x1_1000), "not large");
        assert_eq!(free.take_for_program(0x1_0000), Some(0x2_1000));
        assert_eq!(free.take_for_program(0xf00), Some(0x100), "the bytes before the first page");
        assert_eq!(free.ranges(), [(0x2_0f00, 0x100), (0x3_1000, 0xf100)]);
        let mut narrow = FreeRanges::default();
        narrow.add(0x100, 0x1_0000);
        assert_eq!(narrow.take_for_program(0x1_0000), Some(0x100), "better than no memory");
        assert_eq!(narrow.ranges(), []);
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut free = FreeRanges::default();
        for (start, size) in [(0x10000, 0x1000), (0x20000, 0x400), (0x30000, 0x800)] {
            free.add(start, size);
        }
        assert_eq!(free.take(0x500), Some(0x30000));
        assert_eq!(free.take(0x400), Some(0x20000));
        assert_eq!(free.take(0x400), Some(0x10000));
    }

    /// A step of a program: it takes a range of some grains, or gives back one of its ranges.
    #[derive(Clone, Debug)]
    enum Step {
        Take { grains: u64 },
        GiveBack(proptest::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..=64_u64).prop_map(|grains| Step::Take { grains }),
            (256..=600_u64).prop_map(|grains| Step::Take { grains }),
            any::<proptest::sample::Index>().prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn handed_out_ranges_never_overlap(steps in vec(step(), 0..400)) {
            let mut free = FreeRanges::default();
            free.add(0x100, 1 << 20);
            let mut live = Vec::<(u64, u64)>::new();
            for step in steps {
                match step {
                    Step::Take { grains } => {
                        let size = grains * GRAIN_BYTES;
                        let Some(start) = free.take_for_program(size) else { continue };
                        let is_apart = |(other, bytes): &(u64, u64)| {
                            start + size <= *other || other + bytes <= start
                        };
                        prop_assert!(live.iter().all(is_apart));
                        live.push((start, size));
                    }
                    Step::GiveBack(index) if !live.is_empty() => {
                        let (start, size) = live.swap_remove(index.index(live.len()));
                        free.add(start, size);
                    }
                    Step::GiveBack(_) => {}
                }
            }
            live.drain(..).for_each(|(start, size)| free.add(start, size));
            prop_assert_eq!(free.ranges(), [(0x100, 1 << 20)]);
        }
    }
}
