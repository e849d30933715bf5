//! How many connections to other nodes the daemon makes for its sessions at a time, and how many
//! may fail.
//!
//! A client names the addresses, so it could use the daemon to find out which hosts and ports
//! answer. A connection that leads to a node of the pool costs nothing. One that does not takes a
//! part of its user's budget, which comes back slowly.

use std::time::{Duration, Instant};

use penstock_quota::User;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustc_hash::FxHashMap;

/// Longest address in bytes. Names of hosts have at most 253, paths of sockets at most 107.
pub(crate) const ADDRESS_BYTES_MAX: usize = 512;

/// Most peers of a session, each on a node of its own.
pub(crate) const PEERS_PER_SESSION_MAX: usize = 1024;

/// Most connections that the daemon makes for one session at a time. A client asks for one after
/// the other, for each of its contexts.
pub(crate) const PER_SESSION_MAX: usize = 2;

/// Most connections that the daemon makes at a time, each with a thread. All sessions can make
/// theirs, and a session that has ended leaves some behind.
const TOTAL_MAX: usize = 2 * PER_SESSION_MAX * SESSIONS_PER_DAEMON_MAX;

/// Number of failures in a row that a user has: one for each of 128 nodes that are down or behind a
/// firewall. A scan of all ports of a host then takes 18 hours.
const FAILURES_MAX: u32 = 128;

/// Time after which a failure is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Users beyond this number are looked at again: those without failures need no entry.
const USERS_KEPT: usize = 64;

/// Why the daemon makes no connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    #[error("it makes {PER_SESSION_MAX} connections for this session already")]
    Session,
    #[error("it makes {TOTAL_MAX} connections already; try again in some seconds")]
    Daemon,
    #[error(
        "no node of the pool has answered at the last {FAILURES_MAX} addresses that this user has \
         named; it tries one more each second"
    )]
    Failures,
}

/// What a worker asks for.
pub(crate) struct Wish {
    /// Chosen by the worker.
    pub(crate) number: u64,
    pub(crate) address: String,
    pub(crate) ticket: [u8; TICKET_BYTES],
}

/// The connections that are being made.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    /// By the worker of the session.
    sessions: FxHashMap<u32, usize>,
    total: usize,
    budgets: FxHashMap<User, Budget>,
}

/// Failures that a user has left.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u32,
    /// Time up to which forgotten failures are counted.
    since: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: FAILURES_MAX, since: now }
    }

    /// Gives back the failures that are forgotten by now.
    fn at(self, now: Instant) -> Self {
        let passed = now.saturating_duration_since(self.since);
        let forgotten = u32::try_from(passed.as_secs()).unwrap_or(u32::MAX);
        let left = self.left.saturating_add(forgotten);
        if left >= FAILURES_MAX {
            return Self::new(now);
        }
        Self { left, since: self.since + FORGET_EVERY * forgotten }
    }
}

impl Dials {
    /// Notes that a connection is being made for a session, or says why it may not. It counts as a
    /// failure until [`Dials::end`] says otherwise.
    pub(crate) fn begin(&mut self, worker: u32, user: &User, now: Instant) -> Result<(), Busy> {
        if self.sessions.get(&worker).is_some_and(|count| *count >= PER_SESSION_MAX) {
            return Err(Busy::Session);
        }
        if self.total >= TOTAL_MAX {
            return Err(Busy::Daemon);
        }
        if self.budgets.len() >= USERS_KEPT {
            self.budgets.retain(|_, budget| budget.at(now).left < FAILURES_MAX);
        }
        let budget = self.budgets.entry(user.clone()).or_insert_with(|| Budget::new(now));
        *budget = budget.at(now);
        budget.left = budget.left.checked_sub(1).ok_or(Busy::Failures)?;
        *self.sessions.entry(worker).or_default() += 1;
        self.total += 1;
        Ok(())
    }

    /// Notes the end of what [`Dials::begin`] has allowed.
    pub(crate) fn end(&mut self, worker: u32, user: &User, has_reached: bool) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.sessions.get_mut(&worker) {
            *count -= 1;
            if *count == 0 {
                self.sessions.remove(&worker);
            }
        }
        if let Some(budget) = self.budgets.get_mut(user).filter(|_| has_reached) {
            budget.left = (budget.left + 1).min(FAILURES_MAX);
        }
    }

    /// Returns the number of connections that are being made.
    pub(crate) fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: User = User::Number(7);

    #[test]
    fn a_session_has_few_at_a_time_and_others_have_theirs() {
        let (mut dials, now) = (Dials::default(), Instant::now());
        for _ in 0..PER_SESSION_MAX {
            dials.begin(1, &USER, now).unwrap();
        }
        assert_eq!(dials.begin(1, &USER, now), Err(Busy::Session));
        dials.begin(2, &USER, now).unwrap();
        dials.end(1, &USER, true);
        dials.begin(1, &USER, now).unwrap();
        assert_eq!(dials.total(), PER_SESSION_MAX + 1);
    }

    #[test]
    fn the_daemon_has_a_limit_of_its_own() {
        let (mut dials, now) = (Dials::default(), Instant::now());
        let users = (0..).map(User::Number);
        for (worker, user) in (0..u32::try_from(TOTAL_MAX).unwrap()).zip(users) {
            dials.begin(worker, &user, now).unwrap();
        }
        assert_eq!(dials.begin(u32::MAX, &USER, now), Err(Busy::Daemon));
    }

    #[test]
    fn failures_are_counted_for_the_user_and_forgotten_one_by_one() {
        let (mut dials, now) = (Dials::default(), Instant::now());
        for worker in 0..FAILURES_MAX {
            dials.begin(worker, &USER, now).unwrap();
            dials.end(worker, &USER, false);
        }
        assert_eq!(dials.begin(9, &USER, now), Err(Busy::Failures));
        dials.begin(9, &User::Number(8), now).unwrap();
        let later = now + FORGET_EVERY;
        dials.begin(9, &USER, later).unwrap();
        assert_eq!(dials.begin(10, &USER, later), Err(Busy::Failures));
        // Refused attempts do not move the clock.
        dials.begin(10, &USER, later + FORGET_EVERY).unwrap();
    }

    #[test]
    fn what_reaches_a_node_costs_nothing() {
        let (mut dials, now) = (Dials::default(), Instant::now());
        for _ in 0..10 * FAILURES_MAX {
            dials.begin(1, &USER, now).unwrap();
            dials.end(1, &USER, true);
        }
        assert_eq!((dials.total(), dials.sessions.len()), (0, 0));
    }

    #[test]
    fn users_without_failures_are_forgotten() {
        let (mut dials, now) = (Dials::default(), Instant::now());
        for user in (0..1000).map(User::Number) {
            dials.begin(1, &user, now).unwrap();
            dials.end(1, &user, true);
        }
        assert!(dials.budgets.len() <= USERS_KEPT, "{}", dials.budgets.len());
    }
}
