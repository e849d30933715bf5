//! Why a session does not get something.

use std::fmt;

use crate::limit::Limit;
use crate::limits::{Origin, Scope};
use crate::user::User;

/// A limit that was reached, and who set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub limit: Limit,
    pub scope: Scope,
    pub user: User,
    /// What the user holds, or all users together.
    pub held: u64,
    /// What was asked for in addition.
    pub asked: u64,
    pub max: u64,
    pub origin: Origin,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, user, held, asked, max, origin, .. } = self;
        let show = |amount: u64| limit.unit().show(amount);
        let (held, asked, max) = (show(*held), show(*asked), show(*max));
        match self.scope {
            Scope::Total => write!(
                f,
                "the limit {limit} of all users together is {max} ({origin}): they hold {held}, \
                 and user {user} asks for {asked} more"
            ),
            Scope::User | Scope::Session => write!(
                f,
                "the limit {limit} of user {user} is {max} ({origin}): the user holds {held}, and \
                 asks for {asked} more"
            ),
        }
    }
}

impl std::error::Error for Refusal {}
