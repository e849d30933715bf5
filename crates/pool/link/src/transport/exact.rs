//! Messages of known size over a connection, before a deadline.

use std::io::IoSlice;
use std::time::Instant;

use super::contract::Connection;
use super::syscall::Readiness;
use crate::error::LinkError;

/// Receives exactly `into.len()` bytes.
pub(crate) fn read_exact_until(
    over: &Connection,
    mut into: &mut [u8],
    deadline: Instant,
) -> Result<(), LinkError> {
    while !into.is_empty() {
        // Checked on every turn: slow peers get no more time than silent ones.
        if penstock_process::now() >= deadline {
            return Err(LinkError::HelloTimeout { peer: over.facts.peer.clone() });
        }
        match over.recv_now(into)? {
            Some(got) => into = into.get_mut(got..).unwrap_or_default(),
            None => _ = over.wait(Readiness::Readable, Some(deadline))?,
        }
    }
    Ok(())
}

/// Sends all of `bytes`.
pub(crate) fn write_all_until(
    over: &Connection,
    mut bytes: &[u8],
    deadline: Instant,
) -> Result<(), LinkError> {
    while !bytes.is_empty() {
        match over.send_now(&[IoSlice::new(bytes)])? {
            Some(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            None if penstock_process::now() >= deadline => {
                return Err(LinkError::HelloTimeout { peer: over.facts.peer.clone() });
            }
            None => _ = over.wait(Readiness::Writable, Some(deadline))?,
        }
    }
    Ok(())
}
