//! The builds that have come to an end before: the worker performs them without a rehearsal.

use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::PathBuf;

use penstock_process::Lock;
use rustc_hash::FxHashSet;

/// Most builds that a session remembers, at 16 bytes each: 2 MiB with the table's room.
const KNOWN_MAX: usize = 65_536;

/// A build as a number that no other build has by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark(u64, u64);

impl Mark {
    /// Returns the mark of a build that these bytes describe completely. A client that makes two
    /// builds with the same mark on purpose only loses the protection of its own session.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            for part in parts {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

/// Builds that have come to an end, in this session and in those whose cache it has. Each one is an
/// empty file in the cache, which the daemon keeps for the user's next session.
#[derive(Debug, Default)]
pub(super) struct Known {
    folder: Option<PathBuf>,
    marks: Lock<FxHashSet<Mark>>,
}

impl Known {
    /// `own` is the worker's own folder.
    pub(super) fn new(own: Option<PathBuf>) -> Self {
        Self { folder: own.map(|own| own.join("cache/penstock")), marks: Lock::default() }
    }

    pub(super) fn has(&self, mark: Mark) -> bool {
        self.marks.lock().contains(&mark) || self.path(mark).is_some_and(|path| path.is_file())
    }

    pub(super) fn add(&self, mark: Mark) {
        let mut marks = self.marks.lock();
        if marks.len() >= KNOWN_MAX {
            return;
        }
        marks.insert(mark);
        drop(marks);
        if let (Some(folder), Some(path)) = (&self.folder, self.path(mark)) {
            // If it cannot be written, the next session rehearses this build again.
            _ = fs::create_dir_all(folder).and_then(|()| fs::write(path, []));
        }
    }

    fn path(&self, Mark(high, low): Mark) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{high:016x}{low:016x}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_if_anything_differs() {
        let parts: [&[&[u8]]; 5] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[]];
        for (at, one) in parts.iter().enumerate() {
            assert_eq!(Mark::of(one), Mark::of(one));
            for other in parts.iter().skip(at + 1) {
                assert_ne!(Mark::of(one), Mark::of(other));
            }
        }
    }

    #[test]
    fn a_later_session_knows_what_the_cache_knows() {
        let own = std::env::temp_dir().join(format!("penstock-known-{}", std::process::id()));
        fs::create_dir_all(&own).unwrap();
        let (mark, other) = (Mark::of(&[b"a"]), Mark::of(&[b"b"]));
        let known = Known::new(Some(own.clone()));
        assert!(!known.has(mark));
        known.add(mark);
        assert!(known.has(mark) && !known.has(other));
        let later = Known::new(Some(own.clone()));
        assert!(later.has(mark) && !later.has(other));
        let without = Known::new(None);
        without.add(mark);
        assert!(without.has(mark) && !without.has(other));
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn memory_is_bounded() {
        let known = Known::new(None);
        for number in 0..=KNOWN_MAX {
            known.add(Mark(number as u64, 0));
        }
        assert!(known.has(Mark(0, 0)) && !known.has(Mark(KNOWN_MAX as u64, 0)));
    }
}
