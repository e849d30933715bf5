//! How an administrator's tool gives a daemon an order. See [`penstock_wire::administration`].

use std::time::{Duration, Instant};

use penstock_wire::administration::{Act, Answer, Order, Outcome};
use penstock_wire::hello::Role;
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::address::Address;
use crate::encryption::Trust;
use crate::error::LinkError;
use crate::hello::open;
use crate::stream::Stream;

/// Orders the daemon at this address to do something. The daemon has `patience` for the hello, and
/// once more for its answer.
///
/// # Errors
/// Fails if the daemon refuses this user, or is of a release that takes no orders.
pub fn order<'a>(
    address: &Address,
    act: Act,
    trust: impl Into<Trust<'a>>,
    patience: Duration,
) -> Result<Outcome, LinkError> {
    let deadline = || penstock_process::now() + patience;
    let opened = open(address, Role::Administration, None, trust, deadline())?;
    let deadline = deadline();
    opened.stream.write_all_until(Order::of(act).as_bytes(), deadline)?;
    let mut answer = Answer::new_zeroed();
    opened.stream.read_exact_until(answer.as_mut_bytes(), deadline)?;
    answer.outcome().ok_or_else(|| LinkError::NotPenstock { peer: address.to_string() })
}

/// Hears what a tool orders. Returns `None` if this release knows no such act.
///
/// # Errors
/// Fails if the tool hung up or the deadline passed.
pub fn hear_order(stream: &Stream, deadline: Instant) -> Result<Option<Act>, LinkError> {
    let mut order = Order::new_zeroed();
    stream.read_exact_until(order.as_mut_bytes(), deadline)?;
    Ok(order.act())
}

/// Tells a tool what came of its order.
///
/// # Errors
/// Fails if the tool hung up or the deadline passed.
pub fn tell_outcome(stream: &Stream, outcome: Outcome, deadline: Instant) -> Result<(), LinkError> {
    stream.write_all_until(Answer::of(outcome).as_bytes(), deadline)
}
