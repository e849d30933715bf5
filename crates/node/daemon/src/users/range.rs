//! The range of users for workers, and the users of it that workers have. No I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Fewest users of a range: one for each of 256 sessions, and as many for workers that start, wait
/// for a client or end.
pub const WORKER_USERS_MIN: u32 = 512;

/// The user `nobody`, and the number that stands for "no user" in 16 bits.
const RESERVED: [u32; 2] = [65_534, 65_535];

/// Range of numbers of users and groups that belong to the workers of one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    first: u32,
    last: u32,
}

/// The text names no range of users for workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotARange {
    #[error("`{0}` is no range of users; write FIRST-LAST, such as 600000-600511")]
    Form(String),
    #[error("the range {0} has less than {WORKER_USERS_MIN} users, which 256 sessions may need")]
    TooShort(UserRange),
    #[error("the range {0} has root, nobody or the number that stands for no user")]
    Reserved(UserRange),
}

impl UserRange {
    pub(crate) fn has(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Returns the name and the number in a line of `/etc/passwd` or `/etc/group`, if the number is
    /// in this range.
    pub(crate) fn taken_by(self, line: &str) -> Option<(&str, u32)> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number = fields.nth(1)?.parse().ok()?;
        self.has(number).then_some((name, number))
    }
}

impl fmt::Display for UserRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for UserRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let form = || NotARange::Form(text.to_owned());
        let (first, last) = text.split_once('-').ok_or_else(form)?;
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| form());
        let range = Self { first: number(first)?, last: number(last)? };
        if range.last < range.first {
            return Err(form());
        }
        let reserved = [0, u32::MAX].into_iter().chain(RESERVED);
        if reserved.into_iter().any(|number| range.has(number)) {
            return Err(NotARange::Reserved(range));
        }
        if range.last - range.first < WORKER_USERS_MIN - 1 {
            return Err(NotARange::TooShort(range));
        }
        Ok(range)
    }
}

/// The users that workers have. A user that was given back comes last again, so that what it may
/// have left somewhere lies there as long as possible before somebody could use it.
#[derive(Debug)]
pub(super) struct Roll {
    range: UserRange,
    next: u32,
    taken: BTreeSet<u32>,
}

impl Roll {
    pub(super) fn new(range: UserRange) -> Self {
        Self { range, next: range.first, taken: BTreeSet::new() }
    }

    /// Returns a user that nobody has, if there is one.
    pub(super) fn take(&mut self) -> Option<u32> {
        let UserRange { first, last } = self.range;
        let mut numbers = (self.next..=last).chain(first..self.next);
        let number = numbers.find(|number| !self.taken.contains(number))?;
        self.taken.insert(number);
        self.next = if number == last { first } else { number + 1 };
        Some(number)
    }

    pub(super) fn give_back(&mut self, number: u32) {
        self.taken.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_users_for_all_sessions() {
        let sessions = u32::try_from(penstock_wire::limits::SESSIONS_PER_DAEMON_MAX).unwrap();
        assert_eq!(WORKER_USERS_MIN, 2 * sessions);
    }

    fn range(text: &str) -> Result<UserRange, NotARange> {
        text.parse()
    }

    #[test]
    fn a_range_has_enough_users_and_none_that_is_special() {
        assert_eq!(range("600000-600511").unwrap().to_string(), "600000-600511");
        for text in ["", "5", "-", "a-b", "600511-600000", "-5-600", "1-4294967296"] {
            assert_eq!(range(text), Err(NotARange::Form(text.to_owned())), "{text}");
        }
        for text in ["0-1000", "65000-70000", "4294960000-4294967295", "65535-70000"] {
            assert!(matches!(range(text), Err(NotARange::Reserved(_))), "{text}");
        }
        assert!(matches!(range("600000-600510"), Err(NotARange::TooShort(_))));
    }

    #[test]
    fn users_with_a_name_are_seen() {
        let range = range("1000-2000").unwrap();
        assert_eq!(range.taken_by("alice:x:1000:1000::/home/alice:/bin/sh"), Some(("alice", 1000)));
        assert_eq!(range.taken_by("users:x:2001:"), None);
        assert_eq!(range.taken_by("broken"), None);
    }

    #[test]
    fn each_worker_has_another_user() {
        let mut roll = Roll::new(range("600000-600511").unwrap());
        let all: BTreeSet<u32> = std::iter::from_fn(|| roll.take()).collect();
        assert_eq!(all.len(), 512);
        roll.give_back(600_007);
        assert_eq!((roll.take(), roll.take()), (Some(600_007), None));
        // The one that came back first is not the next one.
        roll.give_back(600_000);
        roll.give_back(600_100);
        assert_eq!(roll.take(), Some(600_100));
        assert_eq!(roll.take(), Some(600_000));
    }
}
