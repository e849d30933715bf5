//! Asks a node for its description without taking a worker. Tools do so before a program starts.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use penstock_link::{
    Address, InstanceId, LinkError, Progress, Receiver, Sender, Side, Trust, establish,
    open_patiently,
};
use penstock_wire::calls::to_client;
use penstock_wire::describe::Survey;
use penstock_wire::hello::{Role, feature};
use penstock_wire::{frame, limits};

/// Size of an answer in bytes: a description, and a sentence about the drivers.
const BYTES_MAX: usize = limits::DESCRIPTION_BYTES_MAX + (64 << 10);

/// A node's answer, and the proved instance of its daemon.
#[derive(Clone, Debug)]
pub struct Surveyed {
    pub survey: Survey,
    /// The daemon's instance, if it was asked for and proved.
    pub instance: Option<InstanceId>,
}

/// Asks a daemon for the description of its node and, with `prove`, for its instance. `patience` is
/// the time for each answer. A daemon that has just started tells that it lives until its first
/// worker has examined the drivers.
///
/// # Errors
/// If the daemon does not answer, refuses, or could not start a worker.
pub fn survey<'a>(
    address: &Address,
    trust: impl Into<Trust<'a>>,
    patience: Duration,
    prove: bool,
) -> Result<Surveyed, LinkError> {
    let mut go_on = |_: Progress| ControlFlow::Continue(());
    let opened = open_patiently(address, Role::Survey, trust, patience, prove, &mut go_on)?;
    let deadline = Instant::now() + patience;
    let bytes = opened.stream.read_sized_until("the survey", BYTES_MAX, deadline)?;
    let survey = frame::decode("a survey", &bytes)
        .map_err(|_| LinkError::NotPenstock { peer: address.to_string() })?;
    Ok(Surveyed { survey, instance: opened.instance })
}

/// Opens a link to a worker of a daemon, for a tool that makes its calls itself. `patience` is the
/// time for each answer of the daemon.
///
/// # Errors
/// If the daemon does not answer or refuses.
pub fn open_link<'a>(
    address: &Address,
    trust: impl Into<Trust<'a>>,
    patience: Duration,
) -> Result<(Sender, Receiver), LinkError> {
    let mut go_on = |_: Progress| ControlFlow::Continue(());
    let opened = open_patiently(address, Role::Client, trust, patience, false, &mut go_on)?;
    let deadline = Instant::now() + patience;
    let (name, bytes_max) = ("the node's description", limits::DESCRIPTION_BYTES_MAX);
    opened.stream.read_sized_until(name, bytes_max, deadline)?;
    // Everything has to travel in frames, as in the trace that a tool sends once more.
    let features = opened.features & !feature::SHARED_ARENA;
    establish(opened.stream, features, Side::Client, to_client::check)
}
