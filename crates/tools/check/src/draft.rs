//! What the planners of OpenCL and of CUDA programs have in common.

use crate::plan::Ptr;
use crate::random::Random;

/// Number of positions in host memory that a planner remembers.
const RECENT_MAX: usize = 4;

/// What differs between planners. The type itself has what only one of them remembers.
pub(crate) trait Kind {
    type Program;
    type Ledger;
    type Feature: Copy + PartialEq;
}

/// A program that is being made.
pub(crate) struct Draft<K: Kind> {
    pub(crate) random: Random,
    pub(crate) program: K::Program,
    pub(crate) ledger: K::Ledger,
    pub(crate) on: Vec<K::Feature>,
    pub(crate) thread: usize,
    /// Typical size of device memory.
    pub(crate) size: usize,
    /// The largest number of an object.
    pub(crate) last: usize,
    /// Host memory of the latest copies.
    pub(crate) recent: Vec<(Ptr, usize)>,
    pub(crate) own: K,
}

/// The steps in which a program grows.
pub(crate) trait Steps {
    /// Makes the first objects and fills host memory.
    fn prologue(&mut self);

    /// Tries to add an operation, or a group of operations that belong together.
    fn step(&mut self);

    /// Looks at all memory at the end.
    fn epilogue(&mut self);

    /// Returns the number of operations.
    fn len(&self) -> usize;
}

impl<K: Kind> Draft<K> {
    pub(crate) fn has(&self, feature: K::Feature) -> bool {
        self.on.contains(&feature)
    }

    /// Returns a number for a new object. Objects of different kinds have different numbers, so
    /// that a program is easy to read.
    pub(crate) fn fresh(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// Remembers the host memory of a copy.
    pub(crate) fn remember(&mut self, at: Ptr, len: usize) {
        self.recent.push((at, len));
        if self.recent.len() > RECENT_MAX {
            self.recent.remove(0);
        }
    }

    /// Returns the rest before an operation, in microseconds. `delays` is the feature of rests.
    pub(crate) fn delay(&mut self, delays: K::Feature) -> u32 {
        if self.has(delays) && self.random.chance(12) {
            self.random.pick(&[1, 5, 20, 100, 400, 1500]).unwrap_or(0)
        } else {
            0
        }
    }

    /// Makes a program of about `ops` operations.
    pub(crate) fn make(&mut self, ops: usize)
    where
        Self: Steps,
    {
        self.prologue();
        let ops = self.random.between(ops / 3 + 4, ops + 4);
        // A step that fails adds no operation.
        for _ in 0..ops * 3 {
            if self.len() >= ops {
                break;
            }
            self.step();
        }
        self.epilogue();
    }
}

/// Chooses about half of the features for a program, so that the others meet more often.
pub(crate) fn some_of<F: Copy>(features: &[F], random: &mut Random) -> Vec<F> {
    features.iter().copied().filter(|_| random.chance(55)).collect()
}

/// Chooses the typical size of device memory, in bytes.
pub(crate) fn size(large: bool, random: &mut Random) -> usize {
    let mut sizes = vec![64, 256, 1024, 4096, 4096, 16 << 10, 64 << 10];
    if large {
        sizes.extend([256 << 10, 1 << 20, 1 << 20, 4 << 20]);
    }
    random.pick(&sizes).unwrap_or(1024)
}
