//! A number of things in use, with a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One counted thing. Dropping it counts one less.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts one more. Returns `None` if `max` are in use.
    pub(super) fn new(of: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(of.clone());
        (of.fetch_add(1, Ordering::AcqRel) < max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_bounded_and_given_back() {
        let count = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> =
            (0..3).map(|_| Counted::new(&count, 3).expect("under the limit")).collect();
        assert!(Counted::new(&count, 3).is_none());
        drop(all);
        assert_eq!(count.load(Ordering::Acquire), 0);
    }
}
