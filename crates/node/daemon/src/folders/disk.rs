//! What the files of one user may take, and which of them go. No I/O.

use std::collections::BTreeMap;

use penstock_quota::{Limit, Limits, Unit, User};

/// Limit of the files of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskLimit {
    user: User,
    pub(super) bytes_max: u64,
    /// The limit, its value and who set it.
    said: String,
}

impl DiskLimit {
    /// Returns the limit of this user, if there is one.
    pub(crate) fn of(limits: &Limits, user: &User) -> Option<Self> {
        let rule = limits.of_user(user, Limit::CacheDisk)?;
        let bytes_max = rule.max?;
        let (limit, amount) = (Limit::CacheDisk, Unit::Bytes.show(bytes_max));
        let said = format!("the limit {limit} of user {user} is {amount} ({})", rule.origin);
        Some(Self { user: user.clone(), bytes_max, said })
    }
}

/// What the folder of a session takes.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) worker: u32,
    pub(super) bytes: u64,
    pub(super) limit: Option<DiskLimit>,
}

/// Returns the sessions that end, and why: of each user beyond the limit, the one that takes most.
pub(super) fn beyond(sessions: &[Taken]) -> Vec<(u32, String)> {
    let mut of_users: BTreeMap<&User, (u64, &Taken, &DiskLimit)> = BTreeMap::new();
    for taken in sessions {
        let Some(limit) = &taken.limit else { continue };
        let entry = of_users.entry(&limit.user).or_insert((0, taken, limit));
        entry.0 = entry.0.saturating_add(taken.bytes);
        if taken.bytes > entry.1.bytes {
            entry.1 = taken;
        }
    }
    let over = of_users.into_values().filter(|(sum, _, limit)| *sum > limit.bytes_max);
    over.map(|(sum, largest, limit)| {
        let said = &limit.said;
        let why = format!("{said}: the files of its sessions take {}", Unit::Bytes.show(sum));
        (largest.worker, why)
    })
    .collect()
}

/// A cache that a user keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) slot: u32,
    /// When it was kept: seconds and nanoseconds.
    pub(super) since: (i64, i64),
    pub(super) bytes: u64,
}

/// Returns the caches that make room for a new one of this size, the oldest first; `None` if the
/// new one has no room at all. A user has at most `slots` caches.
pub(super) fn give_way(
    mut kept: Vec<Kept>,
    new_bytes: u64,
    bytes_max: u64,
    slots: usize,
) -> Option<Vec<u32>> {
    let room = bytes_max.checked_sub(new_bytes)?;
    kept.sort_by_key(|cache| cache.since);
    let mut sum = kept.iter().fold(0_u64, |sum, cache| sum.saturating_add(cache.bytes));
    let mut count = kept.len();
    let mut gone = Vec::new();
    for cache in kept {
        if sum <= room && count < slots {
            break;
        }
        sum = sum.saturating_sub(cache.bytes);
        count -= 1;
        gone.push(cache.slot);
    }
    Some(gone)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_largest_session_of_a_user_beyond_the_limit_ends() {
        let text = "[user.7]\ncache_disk = \"1M\"\n[user.8]\ncache_disk = \"unlimited\"\n";
        let limits = Limits::parse(text, Path::new("/l.toml")).unwrap();
        let taken = |worker, user, kib: u64| Taken {
            worker,
            bytes: kib << 10,
            limit: DiskLimit::of(&limits, &User::Number(user)),
        };
        assert_eq!(beyond(&[taken(1, 7, 1024), taken(2, 8, 9999), taken(3, 9, 9999)]), []);
        let ended = beyond(&[taken(1, 7, 300), taken(2, 7, 500), taken(3, 7, 400), taken(4, 8, 1)]);
        let [(worker, why)] = &*ended else { panic!("{ended:?}") };
        assert_eq!(*worker, 2);
        for words in ["cache_disk of user 7 is 1 MiB (/l.toml, line 2)", "take 1.1 MiB"] {
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn the_oldest_caches_give_way() {
        let kept = |slot, age: i64, bytes| Kept { slot, since: (1000 - age, 0), bytes };
        let all = vec![kept(0, 5, 10), kept(1, 9, 10), kept(2, 7, 10)];
        assert_eq!(give_way(all.clone(), 10, 40, 4), Some(vec![]));
        assert_eq!(give_way(all.clone(), 11, 40, 4), Some(vec![1]));
        assert_eq!(give_way(all.clone(), 40, 40, 4), Some(vec![1, 2, 0]));
        assert_eq!(give_way(all.clone(), 41, 40, 4), None);
        // Without room for one more, the oldest one goes also if all are small.
        assert_eq!(give_way(all, 1, u64::MAX, 3), Some(vec![1]));
        assert_eq!(give_way(vec![], 1, 1, 4), Some(vec![]));
    }
}
