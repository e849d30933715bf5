//! Device time, shared fairly between users.
//!
//! Each user of a device has a clock, which counts the device time of all its sessions, divided by
//! its share. Users *contend* while two or more of them want the device. If a user is ahead of the
//! contending user that was served least by [`SLICE`], it is *held back* until the others have
//! caught up. So the clocks of users who always want the device stay together, however many
//! sessions each of them has. The number of sessions does not occur in the rules.
//!
//! What "held back" means depends on the device, see [`Means`]. The user that was served least is
//! never held back, so somebody can always go on. A user who is alone is never held back.
//!
//! A user who comes back after a pause gets the clock of the others, less one slice. It is then
//! served at once, but cannot claim the time in which it wanted nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::user::User;

/// Lead from which a user is held back, in time of the whole device. Longer than a thread runs on a
/// core before Linux gives the core to another one (3 ms), so that few changes suffice, and short
/// enough that no person notices it.
pub const SLICE: Duration = Duration::from_millis(20);

/// Longest time for which a user who takes turns is held back at a time. The others then cannot
/// stop it, whatever their workers say. Some 28 launches of 5 ms that a device has got already give
/// a user a lead of some 0.2 s, and one core of two needs 0.4 s to catch up.
pub const HELD_MAX: Duration = Duration::from_secs(1);

/// Longest lead. The rest is forgiven: a kernel that cannot be interrupted may run for minutes, and
/// its user would otherwise get nothing for as long.
pub const LEAD_MAX: Duration = Duration::from_secs(1);

/// Time without progress after which a user no longer wants the host's cores, although a session
/// says so: its commands wait for something else. Some sessions of the others still run meanwhile.
const QUIET: Duration = Duration::from_millis(100);

/// Device time that is progress within [`QUIET`]: 1 %. Each of a hundred busy threads beside a
/// core's worth of work gets as much.
const PROGRESS: Duration = Duration::from_millis(1);

/// Part of a core from which a user wants the host's cores, whatever its workers say: a kernel may
/// have left threads that compute after its end. A worker at rest takes less than a thousandth.
const USED: u32 = 100;

/// Most users without a session whose lead is remembered. A user could otherwise end its lead by
/// connecting anew.
const REMEMBERED_MAX: usize = 1024;

/// Precision of clocks: parts of a nanosecond, so that large shares still move.
const PARTS: u128 = 1 << 20;

/// How a user is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Its threads get only the time of cores that nobody else wants. They are never stopped.
    Priority,
    /// Its sessions begin no launches. Those that have begun go on.
    Turns,
}

/// What one session did with the device since the last look.
#[derive(Clone, Debug)]
pub struct Use {
    pub user: User,
    /// Whether the session says that it has commands for the device.
    pub is_wanted: bool,
    /// Device time, in core-seconds for the host's cores.
    pub time: Duration,
}

/// One device, or all cores of the host.
#[derive(Debug)]
pub struct Fair {
    means: Means,
    /// Device time of the whole device in one second.
    capacity: u32,
    /// Time of all looks together.
    now: Duration,
    accounts: BTreeMap<User, Account>,
    /// Highest clock that all contending users have reached.
    reached: u128,
    contending: usize,
}

#[derive(Debug, Default)]
struct Account {
    clock: u128,
    is_wanted: bool,
    contends: bool,
    /// When it last wanted the device.
    wanted_at: Duration,
    /// When it last began to want the device, or made progress.
    moved_at: Duration,
    /// Device time since then.
    gained: Duration,
    held_since: Option<Duration>,
}

impl Fair {
    /// Makes the state of a device that nobody has used.
    #[must_use]
    pub fn new(means: Means, capacity: u32) -> Self {
        Self {
            means,
            capacity: capacity.max(1),
            now: Duration::ZERO,
            accounts: BTreeMap::new(),
            reached: 0,
            contending: 0,
        }
    }

    /// Notes what the sessions did in the time `passed` since the last look, and decides who is
    /// held back from now on. `share` returns how much of the device a user gets, beside others
    /// with a share of 1.
    pub fn look(&mut self, passed: Duration, uses: &[Use], share: &dyn Fn(&User) -> u64) {
        self.now += passed;
        let users = self.sum(passed, uses);
        self.note_wants(&users);
        self.charge(passed, &users, share);
        self.decide();
        let reached = self.reached;
        self.accounts.retain(|user, it| users.contains_key(user) || it.clock > reached);
        while self.accounts.len() > users.len() + REMEMBERED_MAX {
            let gone = self.accounts.keys().find(|user| !users.contains_key(*user)).cloned();
            let Some(gone) = gone else { break };
            self.accounts.remove(&gone);
        }
    }

    /// Returns whether a user is held back now.
    #[must_use]
    pub fn is_held(&self, user: &User) -> bool {
        self.accounts.get(user).is_some_and(|it| it.held_since.is_some())
    }

    /// Returns whether several users want the device, so that the next look should be soon.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.contending > 1
    }

    /// Returns whether anybody wants the device.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.contending > 0
    }

    #[must_use]
    pub fn means(&self) -> Means {
        self.means
    }

    /// Returns whether each user wants the device, and its device time. Who uses cores wants them:
    /// Linux counts this time, and no worker can hide it. At a gate, only launches can be held
    /// back, so only they count there.
    fn sum(&self, passed: Duration, uses: &[Use]) -> BTreeMap<User, (bool, Duration)> {
        let mut users: BTreeMap<User, (bool, Duration)> = BTreeMap::new();
        for one in uses {
            let (is_wanted, time) = users.entry(one.user.clone()).or_default();
            *is_wanted |= one.is_wanted;
            *time = time.saturating_add(one.time);
        }
        if self.means == Means::Priority {
            for (is_wanted, time) in users.values_mut() {
                *is_wanted |= !time.is_zero() && *time >= passed / USED;
            }
        }
        users
    }

    /// Finds out who contends.
    fn note_wants(&mut self, users: &BTreeMap<User, (bool, Duration)>) {
        // On the host's cores, who is held back loses nothing that others leave. So a user that
        // pauses for a moment keeps its precedence.
        let lingers = if self.means == Means::Priority { QUIET } else { Duration::ZERO };
        for (user, &(is_wanted, time)) in users {
            let it = self.accounts.entry(user.clone()).or_default();
            it.gained = it.gained.saturating_add(time);
            let begins = is_wanted && !std::mem::replace(&mut it.is_wanted, is_wanted);
            if begins || it.gained >= PROGRESS {
                (it.moved_at, it.gained) = (self.now, Duration::ZERO);
            }
            if is_wanted {
                it.wanted_at = self.now;
            }
            let wants = is_wanted || it.wanted_at + lingers > self.now;
            // What a held session begins is behind its gate, so its device has nothing of it.
            let is_behind_gate = self.means == Means::Turns && it.held_since.is_some();
            let contends = is_behind_gate || (wants && it.moved_at + QUIET > self.now);
            if contends && !it.contends {
                let slice = SLICE.as_nanos() * PARTS;
                it.clock = it.clock.max(self.reached.saturating_sub(slice));
            }
            it.contends = contends;
        }
        for (user, it) in &mut self.accounts {
            if !users.contains_key(user) {
                (it.is_wanted, it.contends, it.held_since) = (false, false, None);
            }
        }
        self.contending = self.accounts.values().filter(|it| it.contends).count();
    }

    /// Lets the clocks go on.
    fn charge(
        &mut self,
        passed: Duration,
        users: &BTreeMap<User, (bool, Duration)>,
        share: &dyn Fn(&User) -> u64,
    ) {
        let all = passed.as_nanos() * u128::from(self.capacity);
        let sum: u128 = users.values().map(|(_, time)| time.as_nanos()).sum();
        let is_held = self.accounts.values().any(|it| it.held_since.is_some());
        for (user, (_, time)) in users {
            let Some(it) = self.accounts.get_mut(user) else { continue };
            // A device whose time was counted several times has served each session for a part.
            let time = if sum > all { time.as_nanos() * all / sum } else { time.as_nanos() };
            // A user for whom others are held back pays for a quarter of its part, used or not.
            let least = if self.means == Means::Turns && is_held && it.contends {
                let others_pay = it.held_since.is_some();
                if others_pay { 0 } else { all / (4 * self.contending.max(1) as u128) }
            } else {
                0
            };
            let parts = time.max(least) * PARTS / u128::from(self.capacity);
            it.clock = it.clock.saturating_add(parts / u128::from(share(user).max(1)));
        }
    }

    /// Decides who is held back.
    fn decide(&mut self) {
        let now = self.now;
        let least = self.accounts.values().filter(|it| it.contends).map(|it| it.clock).min();
        let Some(least) = least else {
            self.accounts.values_mut().for_each(|it| it.held_since = None);
            return;
        };
        self.reached = self.reached.max(least);
        let (slice, most) = (SLICE.as_nanos() * PARTS, LEAD_MAX.as_nanos() * PARTS);
        let is_contended = self.contending > 1;
        for it in self.accounts.values_mut() {
            it.clock = it.clock.min(least.saturating_add(most));
            let lead = it.clock.saturating_sub(least);
            let is_over = |since| self.means == Means::Turns && now >= since + HELD_MAX;
            match it.held_since {
                _ if !is_contended || lead == 0 => it.held_since = None,
                Some(since) if is_over(since) => (it.clock, it.held_since) = (least, None),
                None if it.contends && lead >= slice => it.held_since = Some(now),
                _ => {}
            }
        }
    }

    /// Returns the users that are held back.
    #[must_use]
    pub fn held(&self) -> BTreeSet<&User> {
        let held = self.accounts.iter().filter(|(_, it)| it.held_since.is_some());
        held.map(|(user, _)| user).collect()
    }
}

#[cfg(test)]
mod tests;
