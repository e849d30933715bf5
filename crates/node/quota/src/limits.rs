//! The limits of one daemon, and who set them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use penstock_wire::limits;

use crate::limit::Limit;
use crate::user::User;

/// Whom a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Each session.
    Session,
    /// All sessions of a user.
    User,
    /// All sessions of the daemon.
    Total,
}

/// Who set a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Penstock itself: the name of the limit in its documents.
    BuiltIn(&'static str),
    /// A line of a file.
    File { path: Arc<Path>, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(name) => write!(f, "the built-in default {name}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
        }
    }
}

/// A limit's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `None` if there is no limit, because a line says so.
    pub max: Option<u64>,
    pub origin: Origin,
}

/// The rules of a user, or of all users together.
pub(crate) type Rules = BTreeMap<Limit, Rule>;

/// The limits of one daemon.
#[derive(Clone, Debug)]
pub struct Limits {
    pub(crate) total: Rules,
    /// Rules of each user that has none of its own.
    pub(crate) default: Rules,
    pub(crate) users: BTreeMap<User, Rules>,
}

impl Default for Limits {
    /// Returns the built-in limits.
    fn default() -> Self {
        let sessions = Rule {
            max: Some(limits::SESSIONS_PER_DAEMON_MAX as u64),
            origin: Origin::BuiltIn("SESSIONS_PER_DAEMON_MAX"),
        };
        Self {
            total: BTreeMap::from([(Limit::Sessions, sessions)]),
            default: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Returns the rule for a user, if one is set.
    #[must_use]
    pub fn of_user(&self, user: &User, limit: Limit) -> Option<&Rule> {
        let own = self.users.get(user).and_then(|rules| rules.get(&limit));
        own.or_else(|| self.default.get(&limit))
    }

    /// Returns the rule for all users together, if one is set.
    #[must_use]
    pub fn of_all(&self, limit: Limit) -> Option<&Rule> {
        self.total.get(&limit)
    }

    /// Returns the built-in rule for each session, if there is one.
    #[must_use]
    pub fn of_session(limit: Limit) -> Option<Rule> {
        let (max, name) = match limit {
            Limit::Objects => {
                (limits::OBJECTS_PER_SESSION_MAX as u64, "OBJECTS_PER_SESSION_MAX, of each kind")
            }
            Limit::BytesInFlight => (limits::STAGED_BYTES_MAX, "STAGED_BYTES_MAX"),
            Limit::CommandsInFlight => (limits::COMMANDS_IN_FLIGHT_MAX, "COMMANDS_IN_FLIGHT_MAX"),
            _ => return None,
        };
        Some(Rule { max: Some(max), origin: Origin::BuiltIn(name) })
    }

    /// Returns whether anybody has this limit.
    #[must_use]
    pub fn sets(&self, limit: Limit) -> bool {
        let mut all = self.users.values().chain([&self.default, &self.total]);
        all.any(|rules| rules.contains_key(&limit))
    }

    /// Returns whether the limits name this user.
    #[must_use]
    pub fn names(&self, user: &User) -> bool {
        self.users.contains_key(user)
    }

    /// Returns the users that the limits name.
    pub fn named(&self) -> impl Iterator<Item = &User> {
        self.users.keys()
    }
}
