//! Who holds what: the sessions of each user, and what was lent to them.
//!
//! A session borrows device memory, host memory and objects before it uses them, because the daemon
//! does not see what a worker does. A session without a limit borrows ahead, so that it asks
//! rarely. A session with a limit borrows exactly what it uses, so that no other one is refused for
//! the sake of something that nobody uses. What flows through a session (bytes and commands) is not
//! borrowed: each session has a part of the limit, and changes to the parts reach it within
//! milliseconds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limit::{Limit, Unit};
use crate::limits::{Limits, Rule, Scope};
use crate::refusal::Refusal;
use crate::user::User;

/// Something that sessions borrow.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    DeviceMemory,
    HostMemory,
    Objects,
}

/// Memory that a session without a limit borrows ahead: less than any program notices.
const AHEAD_BYTES: u64 = 16 << 20;

/// Objects that a session without a limit borrows ahead. A program of usual size has a few hundred.
const AHEAD_OBJECTS: u64 = 4096;

/// Most users of a report: one for each session, and as many others. A report then has some 5,000
/// rows, of some 200 bytes each in a status.
const REPORTED_USERS_MAX: usize = 512;

/// Objects that a session with a limit may keep unused. So a program that makes and releases
/// objects does not ask the daemon each time.
const SPARE_OBJECTS: u64 = 64;

impl Resource {
    pub const ALL: [Self; 3] = [Self::DeviceMemory, Self::HostMemory, Self::Objects];

    #[must_use]
    pub fn limit(self) -> Limit {
        match self {
            Self::DeviceMemory => Limit::DeviceMemory,
            Self::HostMemory => Limit::HostMemory,
            Self::Objects => Limit::Objects,
        }
    }

    fn ahead(self) -> u64 {
        match self.limit().unit() {
            Unit::Bytes => AHEAD_BYTES,
            _ => AHEAD_OBJECTS,
        }
    }

    fn spare(self) -> u64 {
        match self.limit().unit() {
            Unit::Bytes => 0,
            _ => SPARE_OBJECTS,
        }
    }
}

/// What a session got.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    /// Amount that it has in addition.
    pub amount: u64,
    /// Amount that it may keep unused. It gives back the rest.
    pub spare_max: u64,
}

/// A limit that a session applies itself.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    pub max: u64,
    /// The limit and who set it, for messages.
    pub said: String,
}

/// The limits that a session applies itself. They change while it runs.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What it may keep unused of each resource, by its index in [`Resource::ALL`].
    pub spare_max: [u64; Resource::ALL.len()],
    pub bytes_in_flight: Option<Cap>,
    pub commands_in_flight: Option<Cap>,
    /// In seconds, as the other times.
    pub kernel_time: Option<Cap>,
    pub compile_time: Option<Cap>,
    pub idle_time: Option<Cap>,
}

/// One line of a report: a limit, what is held of it, and who set it.
#[derive(Clone, Debug)]
pub struct Row {
    /// `None` for all users together.
    pub user: Option<User>,
    pub scope: Scope,
    pub limit: Limit,
    /// What is held, if somebody counts it across sessions.
    pub held: Option<u64>,
    /// `None` if nobody set a limit.
    pub rule: Option<Rule>,
}

#[derive(Debug)]
struct Holder {
    user: User,
    /// By the index of the resource in [`Resource::ALL`].
    lent: [u64; Resource::ALL.len()],
}

/// The sessions of a daemon and what they hold.
#[derive(Debug, Default)]
pub struct Ledger {
    limits: Limits,
    sessions: BTreeMap<u32, Holder>,
    /// Number of changes that may have changed the terms of sessions.
    version: u64,
}

impl Ledger {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, sessions: BTreeMap::new(), version: 0 }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Replaces the limits. Sessions keep what they hold, also if that is more than they could get
    /// now.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.version += 1;
    }

    /// Returns a number that changes whenever the terms of a session may have changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Decides whether a session of this user may begin now.
    ///
    /// # Errors
    /// Refuses the session if a limit is reached.
    pub fn may_enter(&self, user: &User) -> Result<(), Refusal> {
        self.check(user, Limit::Sessions, 1)
    }

    /// Begins a session. Does not decide anything: see [`Ledger::may_enter`].
    pub fn enter(&mut self, session: u32, user: User) {
        self.version += 1;
        self.sessions.insert(session, Holder { user, lent: [0; Resource::ALL.len()] });
    }

    /// Ends a session, which returns everything that was lent to it. An unknown session is no
    /// error.
    pub fn leave(&mut self, session: u32) {
        self.version += 1;
        self.sessions.remove(&session);
    }

    /// Returns the user of a session.
    #[must_use]
    pub fn user(&self, session: u32) -> Option<&User> {
        self.sessions.get(&session).map(|holder| &holder.user)
    }

    /// Returns whether sessions of two or more users run.
    #[must_use]
    pub fn has_several_users(&self) -> bool {
        let mut users = self.sessions.values().map(|holder| &holder.user);
        let first = users.next();
        users.any(|user| Some(user) != first)
    }

    /// Returns what has been lent to each session.
    #[must_use]
    pub fn lent(&self, resource: Resource) -> BTreeMap<u32, u64> {
        let lent = |holder: &Holder| holder.lent.get(resource as usize).copied();
        self.sessions.iter().map(|(id, it)| (*id, lent(it).unwrap_or_default())).collect()
    }

    /// Returns the sessions.
    pub fn sessions(&self) -> impl Iterator<Item = u32> {
        self.sessions.keys().copied()
    }

    /// Lends what a new session of no limit gets at once.
    pub fn first_loan(&mut self, session: u32, resource: Resource) -> Loan {
        let Some(holder) = self.sessions.get(&session) else { return Loan::default() };
        if self.is_limited(&holder.user, resource.limit()) {
            return Loan { amount: 0, spare_max: resource.spare() };
        }
        self.lend(session, resource, resource.ahead(), u64::MAX)
    }

    /// Lends at least `least` to a session.
    ///
    /// # Errors
    /// Refuses if a limit would be exceeded.
    pub fn borrow(
        &mut self,
        session: u32,
        resource: Resource,
        least: u64,
    ) -> Result<Loan, Refusal> {
        let Some(holder) = self.sessions.get(&session) else { return Ok(Loan::default()) };
        let (user, limit) = (holder.user.clone(), resource.limit());
        self.check(&user, limit, least)?;
        if !self.is_limited(&user, limit) {
            let had = holder.lent.get(resource as usize).copied().unwrap_or_default();
            let ahead = resource.ahead().max(had / 4);
            return Ok(self.lend(session, resource, least.saturating_add(ahead), u64::MAX));
        }
        let spare = resource.spare();
        let more = least.saturating_add(spare);
        let amount = if self.check(&user, limit, more).is_ok() { more } else { least };
        Ok(self.lend(session, resource, amount, spare))
    }

    /// Takes back what a session no longer needs.
    pub fn give_back(&mut self, session: u32, resource: Resource, amount: u64) {
        if let Some(lent) = self.lent_to(session, resource) {
            // A worker that gives back more than it has gains nothing.
            *lent = lent.saturating_sub(amount);
        }
    }

    /// Returns how much of a device a user gets, beside others with a share of 1.
    #[must_use]
    pub fn share(&self, user: &User) -> u64 {
        self.limits.of_user(user, Limit::DeviceShare).and_then(|rule| rule.max).unwrap_or(1)
    }

    /// Returns the limits that a session applies itself.
    #[must_use]
    pub fn terms(&self, session: u32) -> Terms {
        Terms {
            spare_max: Resource::ALL.map(|resource| self.spare_max(session, resource)),
            bytes_in_flight: self.flow(session, Limit::BytesInFlight),
            commands_in_flight: self.flow(session, Limit::CommandsInFlight),
            kernel_time: self.kernel_time(session),
            compile_time: self.time(session, Limit::CompileTime),
            idle_time: self.time(session, Limit::IdleTime),
        }
    }

    /// Returns the limit of the time of a session's kernels.
    #[must_use]
    pub fn kernel_time(&self, session: u32) -> Option<Cap> {
        self.time(session, Limit::KernelTime)
    }

    /// Returns what a session may keep unused now; it must give back the rest.
    fn spare_max(&self, session: u32, resource: Resource) -> u64 {
        let user = self.user(session);
        let is_limited = user.is_some_and(|user| self.is_limited(user, resource.limit()));
        if is_limited { resource.spare() } else { u64::MAX }
    }

    /// Returns a session's part of a limit for what flows through sessions: of its user's limit,
    /// divided by the number of the user's sessions, or of the limit of all users, divided by the
    /// number of all sessions. `None` if only the built-in limit of each session applies.
    fn flow(&self, session: u32, limit: Limit) -> Option<Cap> {
        let user = self.user(session)?;
        let count = |of: &dyn Fn(&User) -> bool| {
            self.sessions.values().filter(|holder| of(&holder.user)).count() as u64
        };
        let parts = [
            (self.limits.of_user(user, limit).cloned(), count(&|it| it == user), "the user"),
            (self.limits.of_all(limit).cloned(), count(&|_| true), "all users together"),
        ];
        let flows = parts.into_iter().filter_map(|(rule, sessions, whose)| {
            let rule = rule?;
            // A part of nothing would stop the session for ever.
            let max = (rule.max? / sessions.max(1)).max(1);
            let (whole, origin) = (limit.unit().show(rule.max?), &rule.origin);
            let said =
                format!("the limit {limit} of {whose}, {whole} for {sessions} sessions ({origin})");
            Some(Cap { max, said })
        });
        flows.min_by_key(|flow| flow.max)
    }

    fn time(&self, session: u32, limit: Limit) -> Option<Cap> {
        let user = self.user(session)?;
        let rule = self.limits.of_user(user, limit)?;
        let max = rule.max?;
        let said = format!(
            "the limit {limit} of user {user} is {} ({})",
            limit.unit().show(max),
            rule.origin
        );
        Some(Cap { max, said })
    }

    /// Returns each limit with what is held of it: for each session, for all users together, for
    /// each user that has sessions, and for users that the limits name.
    #[must_use]
    pub fn report(&self) -> Vec<Row> {
        let of_sessions = Limit::ALL.into_iter().filter_map(|limit| {
            let rule = Some(Limits::of_session(limit)?);
            Some(Row { user: None, scope: Scope::Session, limit, held: None, rule })
        });
        let of_all = Limit::ALL.into_iter().filter(|limit| limit.has_total()).map(|limit| {
            let (held, rule) = (self.held(&|_| true, limit), self.limits.of_all(limit).cloned());
            Row { user: None, scope: Scope::Total, limit, held, rule }
        });
        let holders: BTreeSet<&User> = self.sessions.values().map(|holder| &holder.user).collect();
        let others = self.limits.named().filter(|user| !holders.contains(user));
        let users = holders.iter().copied().chain(others).take(REPORTED_USERS_MAX);
        let of_users = users.flat_map(|user| {
            Limit::ALL.into_iter().map(move |limit| {
                let rule = self.limits.of_user(user, limit).cloned();
                let held = self.held(&|it| it == user, limit);
                Row { user: Some(user.clone()), scope: Scope::User, limit, held, rule }
            })
        });
        of_sessions.chain(of_all).chain(of_users).collect()
    }

    /// Checks that `more` fits the limits of the user and of all users.
    fn check(&self, user: &User, limit: Limit, more: u64) -> Result<(), Refusal> {
        let of_user = (self.limits.of_user(user, limit), Scope::User);
        let of_all = (self.limits.of_all(limit), Scope::Total);
        for (rule, scope) in [of_user, of_all] {
            let Some(Rule { max: Some(max), origin }) = rule else { continue };
            let counts = |it: &User| scope == Scope::Total || it == user;
            let held = self.held(&counts, limit).unwrap_or_default();
            if held.checked_add(more).is_none_or(|sum| sum > *max) {
                let (user, origin) = (user.clone(), origin.clone());
                return Err(Refusal { limit, scope, user, held, asked: more, max: *max, origin });
            }
        }
        Ok(())
    }

    fn is_limited(&self, user: &User, limit: Limit) -> bool {
        let rules = [self.limits.of_user(user, limit), self.limits.of_all(limit)];
        rules.into_iter().flatten().any(|rule| rule.max.is_some())
    }

    /// Returns what the users hold that `counts` selects; `None` if nobody counts it.
    fn held(&self, counts: &dyn Fn(&User) -> bool, limit: Limit) -> Option<u64> {
        let mut holders = self.sessions.values().filter(|holder| counts(&holder.user));
        if limit == Limit::Sessions {
            return Some(holders.count() as u64);
        }
        let at = Resource::ALL.iter().position(|resource| resource.limit() == limit)?;
        let lent = |sum: u64, holder: &Holder| {
            sum.saturating_add(holder.lent.get(at).copied().unwrap_or_default())
        };
        Some(holders.by_ref().fold(0, lent))
    }

    fn lend(&mut self, session: u32, resource: Resource, amount: u64, spare_max: u64) -> Loan {
        if let Some(lent) = self.lent_to(session, resource) {
            *lent = lent.saturating_add(amount);
        }
        Loan { amount, spare_max }
    }

    fn lent_to(&mut self, session: u32, resource: Resource) -> Option<&mut u64> {
        self.sessions.get_mut(&session)?.lent.get_mut(resource as usize)
    }
}

#[cfg(test)]
mod tests;
