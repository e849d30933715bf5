//! Device time shared between users: what the sessions did, and how those are held back that
//! `penstock_quota::Fair` chooses.
//!
//! All devices that compute with the host's cores are one device here, because they share the
//! cores. Linux tells the core-seconds of each worker, so no worker can lie about them. A user that
//! is held back gets the lowest priority: its kernels get only the time of cores that nobody else
//! wants. They are never stopped, so nothing that depends on them is.
//!
//! Other devices have no priorities that a daemon could change, and a daemon that is not allowed to
//! raise priorities again must not lower them. There, workers of held users begin no launches, see
//! `session/turns.rs`. The time of other devices is what the workers say, and a worker that always
//! says that it uses the device is believed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use penstock_quota::{Fair, Means, Use, User};
use rustc_hash::FxHashMap;
use rustix::process::{Pid, getpriority_process, setpriority_pgrp, setpriority_process};
use serde::{Deserialize, Serialize};

/// Time between two looks while several users want a device: half a slice.
const LOOK_CONTENDED: Duration = Duration::from_millis(10);

/// Time between two looks while one user wants a device and another one has a session. The other
/// one waits for its first look for that long at most. A look costs some 20 µs.
const LOOK_WANTED: Duration = Duration::from_millis(20);

/// Time between two looks while nobody wants a device.
const LOOK_QUIET: Duration = Duration::from_millis(100);

/// Lowest priority on Linux. It has a weight of 15, and the usual one has 1,024.
const NICE_MAX: i32 = 19;

/// Most devices of a worker that can have turns: one bit each.
const DEVICES_WITH_TURNS_MAX: usize = u64::BITS as usize;

/// What the daemon knows of a session when it looks.
pub(crate) struct Seen {
    pub(crate) worker: u32,
    pub(crate) user: User,
    /// Whether each device is in use, and for how long it was in use, as the worker says.
    pub(crate) devices: Vec<(bool, Duration)>,
    /// Core-seconds of the worker.
    pub(crate) cores: Duration,
}

/// What a worker is told: the devices on which it begins no launches, and those on which it gives
/// the driver only a few at a time. One bit for each device.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    pub(crate) closed: u64,
    pub(crate) paced: u64,
}

/// Changes for one session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Lower the priority of this worker, or raise it again.
    Priority {
        worker: u32,
        is_low: bool,
    },
    Gates {
        worker: u32,
        gates: Gates,
    },
}

/// Where a session was at the last look, and what was done about it.
#[derive(Debug, Default)]
struct Mark {
    /// As in [`Seen::devices`].
    devices: Vec<(bool, Duration)>,
    cores: Duration,
    is_low: bool,
    gates: Gates,
}

/// Shares the devices of a node.
#[derive(Debug)]
pub(crate) struct Sharing {
    means: Means,
    cores: u32,
    host: Fair,
    devices: BTreeMap<usize, Fair>,
    marks: FxHashMap<u32, Mark>,
    looked: Option<Instant>,
    next: Option<Instant>,
    /// Whether a failure was told.
    told: bool,
}

impl Sharing {
    pub(crate) fn new(means: Means, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            means,
            cores,
            host: Fair::new(means, cores),
            devices: BTreeMap::new(),
            marks: FxHashMap::default(),
            looked: None,
            next: None,
            told: false,
        }
    }

    pub(crate) fn means(&self) -> Means {
        self.means
    }

    /// Returns whether a session has a low priority now.
    pub(crate) fn is_low(&self, worker: u32) -> bool {
        self.marks.get(&worker).is_some_and(|mark| mark.is_low)
    }

    /// Returns whether a failure is to be told: the first one.
    pub(crate) fn complains(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// Returns when to look next; `None` while fewer than two users have sessions.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.next
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|at| now >= at)
    }

    /// Ends sharing, because fewer than two users have sessions. Returns what must change.
    pub(crate) fn rest(&mut self) -> Vec<Change> {
        if self.looked.is_none() {
            return Vec::new();
        }
        self.host = Fair::new(self.means, self.cores);
        self.devices.clear();
        (self.looked, self.next) = (None, None);
        let marks = std::mem::take(&mut self.marks);
        let undo = |(worker, mut mark): (u32, Mark)| mark.change(worker, false, Gates::default());
        marks.into_iter().flat_map(undo).collect()
    }

    /// Looks at all sessions. `of_host` says of each device whether it computes with the host's
    /// cores. Returns what must change.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        seen: &[Seen],
        of_host: &[bool],
        share: &dyn Fn(&User) -> u64,
    ) -> Vec<Change> {
        let passed = self.looked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.looked = Some(now);
        self.marks.retain(|worker, _| seen.iter().any(|it| it.worker == *worker));
        let mut of_cores = Vec::new();
        let mut of_devices: BTreeMap<usize, Vec<Use>> = BTreeMap::new();
        for it in seen {
            let is_new = !self.marks.contains_key(&it.worker);
            let mark = self.marks.entry(it.worker).or_default();
            let cores = if is_new { Duration::ZERO } else { it.cores.saturating_sub(mark.cores) };
            mark.cores = it.cores;
            let mut wants_cores = false;
            for (index, ((in_use, time), of_host)) in it.devices.iter().zip(of_host).enumerate() {
                if *of_host {
                    wants_cores |= in_use;
                    continue;
                }
                let (was_in_use, before) =
                    mark.devices.get(index).copied().unwrap_or((false, *time));
                let grown = time.saturating_sub(before).min(passed);
                // A worker that says that it uses the device uses it all the time.
                let time = if *in_use && was_in_use { passed } else { grown };
                let one = Use { user: it.user.clone(), is_wanted: *in_use, time };
                of_devices.entry(index).or_default().push(one);
            }
            mark.devices.clone_from(&it.devices);
            of_cores.push(Use { user: it.user.clone(), is_wanted: wants_cores, time: cores });
        }
        self.host.look(passed, &of_cores, share);
        for (index, uses) in of_devices {
            let fair = self.devices.entry(index).or_insert_with(|| Fair::new(Means::Turns, 1));
            fair.look(passed, &uses, share);
        }
        self.next = Some(now + self.interval());
        let decided: Vec<_> = seen.iter().map(|it| (it.worker, self.decide(it, of_host))).collect();
        let change = |(worker, (is_low, gates))| {
            let mark = self.marks.get_mut(&worker).map(|mark| mark.change(worker, is_low, gates));
            mark.unwrap_or_default()
        };
        decided.into_iter().flat_map(change).collect()
    }

    fn interval(&self) -> Duration {
        let mut all = self.devices.values().chain([&self.host]);
        if all.clone().any(Fair::is_contended) {
            LOOK_CONTENDED
        } else if all.any(Fair::is_wanted) {
            LOOK_WANTED
        } else {
            LOOK_QUIET
        }
    }

    /// Returns whether a session has a low priority from now on, and its gates.
    fn decide(&self, seen: &Seen, of_host: &[bool]) -> (bool, Gates) {
        let is_low = self.means == Means::Priority && self.host.is_held(&seen.user);
        let mut gates = Gates::default();
        for (index, of_host) in of_host.iter().enumerate().take(DEVICES_WITH_TURNS_MAX) {
            let fair = if *of_host { Some(&self.host) } else { self.devices.get(&index) };
            let Some(fair) = fair.filter(|fair| fair.means() == Means::Turns) else { continue };
            gates.closed |= u64::from(fair.is_held(&seen.user)) << index;
            gates.paced |= u64::from(fair.is_contended()) << index;
        }
        (is_low, gates)
    }
}

impl Mark {
    /// Notes what is to be, and returns what must change for that.
    fn change(&mut self, worker: u32, is_low: bool, gates: Gates) -> Vec<Change> {
        let mut changes = Vec::new();
        if std::mem::replace(&mut self.is_low, is_low) != is_low {
            changes.push(Change::Priority { worker, is_low });
        }
        if std::mem::replace(&mut self.gates, gates) != gates {
            changes.push(Change::Gates { worker, gates });
        }
        changes
    }
}

/// Finds out how this daemon can hold back users of the host's cores: by priorities, if it may
/// raise them again. A thread that nobody needs tries it.
pub(crate) fn means_here() -> Means {
    let tries = || -> rustix::io::Result<()> {
        let usual = getpriority_process(None)?;
        setpriority_process(None, NICE_MAX)?;
        setpriority_process(None, usual)
    };
    let tried = penstock_process::start("priority", tries);
    match tried.map(thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => Means::Priority,
        _ => Means::Turns,
    }
}

/// Sets the priority of all threads of a worker and of the processes that it has started, which are
/// in its group. The caller has not waited for the worker's end, so no other group has its number.
pub(crate) fn set_priority(worker: u32, is_low: bool) -> rustix::io::Result<()> {
    let Some(group) = i32::try_from(worker).ok().and_then(Pid::from_raw) else { return Ok(()) };
    // The daemon's own priority is the usual one of its workers.
    let usual = getpriority_process(None)?;
    setpriority_pgrp(Some(group), if is_low { NICE_MAX } else { usual })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn seen(worker: u32, user: u32, devices: &[(bool, u64)], cores_ms: u64) -> Seen {
        let devices =
            devices.iter().map(|(in_use, ms)| (*in_use, Duration::from_millis(*ms))).collect();
        Seen { worker, user: User::Number(user), devices, cores: Duration::from_millis(cores_ms) }
    }

    /// Looks for a second, with two workers of user 1 and one of user 2 that want the device all
    /// the time and get the same time each. Returns all changes.
    fn run(sharing: &mut Sharing, of_host: bool) -> Vec<Change> {
        let start = Instant::now();
        let mut changes = Vec::new();
        for tick in 0..100 {
            let at = u64::from(tick) * 10;
            let cores = if of_host { at } else { 0 };
            let all = [(10, 1), (11, 1), (20, 2)];
            let all: Vec<_> =
                all.iter().map(|(it, user)| seen(*it, *user, &[(true, at)], cores)).collect();
            changes.extend(sharing.look(start + TICK * tick, &all, &[of_host], &|_| 1));
        }
        changes
    }

    #[test]
    fn users_of_the_cores_get_a_low_priority() {
        let mut sharing = Sharing::new(Means::Priority, 2);
        let changes = run(&mut sharing, true);
        assert!(changes.contains(&Change::Priority { worker: 10, is_low: true }));
        assert!(changes.contains(&Change::Priority { worker: 11, is_low: true }));
        assert!(changes.iter().all(|it| matches!(it, Change::Priority { worker: 10 | 11, .. })));
        // What was lowered is raised when the other user has left.
        let undone = sharing.rest();
        assert!(undone.iter().all(|it| matches!(it, Change::Priority { is_low: false, .. })));
        assert_eq!(sharing.next_look(), None);
        assert_eq!(sharing.rest(), []);
    }

    #[test]
    fn users_of_other_devices_take_turns() {
        let mut sharing = Sharing::new(Means::Priority, 2);
        let changes = run(&mut sharing, false);
        let closed = Gates { closed: 1, paced: 1 };
        assert!(changes.contains(&Change::Gates { worker: 10, gates: closed }));
        let open = Gates { closed: 0, paced: 1 };
        assert!(changes.contains(&Change::Gates { worker: 20, gates: open }));
        assert!(!changes.contains(&Change::Gates { worker: 20, gates: closed }));
        assert!(sharing.rest().contains(&Change::Gates { worker: 20, gates: Gates::default() }));
    }

    #[test]
    fn a_quiet_node_is_looked_at_rarely() {
        let mut sharing = Sharing::new(Means::Turns, 2);
        let start = Instant::now();
        let idle = [seen(10, 1, &[(false, 0)], 5), seen(20, 2, &[(false, 0)], 5)];
        assert_eq!(sharing.look(start, &idle, &[true], &|_| 1), []);
        assert_eq!(sharing.next_look(), Some(start + LOOK_QUIET));
        let busy = [seen(10, 1, &[(true, 0)], 5), seen(20, 2, &[(false, 0)], 5)];
        assert_eq!(sharing.look(start, &busy, &[true], &|_| 1), []);
        assert_eq!(sharing.next_look(), Some(start + LOOK_WANTED));
    }

    #[test]
    fn the_trial_of_priorities_leaves_this_process_as_it_is() {
        let before = getpriority_process(None);
        // Which of the two it is depends on the rights of this process.
        _ = means_here();
        assert_eq!(getpriority_process(None), before);
    }
}
