//! Asks a node for its description without taking a worker. Tools do so before a program starts.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use penstock_link::{Address, InstanceId, Key, LinkError, Progress};
use penstock_wire::describe::Survey;
use penstock_wire::hello::Role;
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
pub fn survey(
    address: &Address,
    key: Option<&Key>,
    patience: Duration,
    prove: bool,
) -> Result<Surveyed, LinkError> {
    let mut go_on = |_: Progress| ControlFlow::Continue(());
    let opened =
        penstock_link::open_patiently(address, Role::Survey, key, patience, prove, &mut go_on)?;
    let not_ours = || LinkError::NotPenstock { peer: address.to_string() };
    let deadline = Instant::now() + patience;
    let mut length = [0; 4];
    opened.stream.read_exact_until(&mut length, deadline)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > BYTES_MAX {
        return Err(not_ours());
    }
    let mut bytes = vec![0; length];
    opened.stream.read_exact_until(&mut bytes, deadline)?;
    let survey = frame::decode("a survey", &bytes).map_err(|_| not_ours())?;
    Ok(Surveyed { survey, instance: opened.instance })
}
