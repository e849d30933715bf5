//! Which parts of a region are taken. Decides only; does not touch memory.

/// The parts of one region.
#[derive(Debug)]
pub(super) struct Parts {
    taken: Vec<bool>,
    /// Part that is looked at first. A program in the guest can keep a part mapped after its
    /// session has ended, so the part that was freed last is given out last.
    next: usize,
}

impl Parts {
    pub(super) fn new(count: usize) -> Self {
        Self { taken: vec![false; count], next: 0 }
    }

    /// Takes a free part and returns its index.
    pub(super) fn take(&mut self) -> Option<usize> {
        let count = self.taken.len();
        let index = (self.next..self.next + count)
            .map(|index| index % count)
            .find(|&index| self.taken.get(index) == Some(&false))?;
        self.set(index, true);
        self.next = (index + 1) % count;
        Some(index)
    }

    pub(super) fn free(&mut self, index: usize) {
        self.set(index, false);
    }

    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Returns the number of parts that are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.iter().filter(|&&taken| taken).count()
    }

    fn set(&mut self, index: usize, taken: bool) {
        if let Some(part) = self.taken.get_mut(index) {
            *part = taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_one_owner_and_comes_back() {
        let mut parts = Parts::new(3);
        assert_eq!([parts.take(), parts.take(), parts.take()], [Some(0), Some(1), Some(2)]);
        assert_eq!((parts.take(), parts.taken()), (None, 3));
        parts.free(1);
        assert_eq!((parts.take(), parts.take()), (Some(1), None));
    }

    #[test]
    fn the_part_that_was_freed_last_is_given_out_last() {
        let mut parts = Parts::new(3);
        let first = parts.take().unwrap();
        parts.free(first);
        assert_eq!([parts.take(), parts.take(), parts.take()], [Some(1), Some(2), Some(0)]);
        assert_eq!(Parts::new(0).take(), None);
    }
}
