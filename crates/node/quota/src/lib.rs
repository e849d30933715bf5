//! What each user of a daemon may have: the limits, the file that sets them, and who holds what.
//!
//! * [`Limits`] are the limits of one daemon. [`Limits::parse`] reads them from a file.
//! * [`Ledger`] is a state machine that knows the sessions of each user and what they hold. It
//!   decides whether a session may begin, and how much it may have.
//! * [`Fair`] is a state machine that shares the time of a device between users. It decides who is
//!   held back for now.
//! * [`Stray`] is a state machine that finds core time of a session which no work for its client
//!   explains. It decides whether a kernel has left threads that compute for too long.
//! * [`Refusal`] says which limit was reached, and who set it.
//!
//! Nothing here has I/O, threads or a clock. The daemon tells the state machines what happens.
#![forbid(unsafe_code)]

mod fair;
mod file;
mod ledger;
mod limit;
mod limits;
mod refusal;
mod stray;
mod user;

pub use fair::{Fair, HELD_MAX, LEAD_MAX, Means, SLICE, Use};
pub use file::{FILE_BYTES_MAX, FileError, Problem};
pub use ledger::{Cap, Ledger, Loan, Resource, Row, Terms};
pub use limit::{Limit, NOT_ENFORCED, NotEnforced, Unit, look_every};
pub use limits::{Limits, Origin, Rule, Scope};
pub use refusal::Refusal;
pub use stray::{Account, Doing, Excess, Stray, Told};
pub use user::{NotAUser, User};
