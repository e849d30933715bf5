//! Transfers between the workers of two processes, for MPI: see [`penstock_client::Grant`].

use std::collections::HashMap;
use std::sync::Arc;

use penstock_client::{Event, Grant, Memory, Stranger};
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::platform;
use crate::edge::{CuResult, new_number, of_error, of_status, require};

/// A transfer that has not ended, or whose end nobody has asked for.
enum Transfer {
    Incoming(Arc<Grant>),
    Outgoing(Event),
}

/// The transfers of the process, by the numbers that this module gives them.
static TRANSFERS: Lock<Option<HashMap<u64, Transfer>>> = Lock::new(None);

/// A range of device memory.
pub(crate) struct Span {
    memory: Arc<Memory>,
    offset: u64,
    size: u64,
}

/// A grant: its number in this process, and the number for the other process.
pub(crate) struct Made {
    pub(crate) transfer: u64,
    pub(crate) number: u64,
}

impl Span {
    /// Finds a range of device memory.
    pub(crate) fn at(address: u64, size: u64) -> CuResult<Self> {
        platform::devices()?;
        let device = platform::device_of(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let place = device.space.locate(address, size)?;
        Ok(Self { memory: place.memory.clone(), offset: place.offset, size })
    }

    /// Returns a number of the worker that has this memory.
    pub(crate) fn worker(&self) -> CuResult<u64> {
        self.memory.worker().map_err(|error| of_error(&error))
    }

    pub(crate) fn invite(&self) -> CuResult<(Stranger, Vec<u8>)> {
        self.memory.invite().map_err(|error| of_error(&error))
    }

    pub(crate) fn visit(&self, invitation: &[u8]) -> CuResult<Stranger> {
        self.memory.visit(invitation).map_err(|error| of_error(&error))
    }

    pub(crate) fn grant(&self, stranger: u64) -> CuResult<Made> {
        let stranger = Stranger::with_number(stranger);
        let made = self.memory.grant(self.offset, self.size, stranger);
        let made = made.map_err(|error| of_error(&error))?;
        let number = made.number();
        Ok(Made { transfer: enter(Transfer::Incoming(Arc::new(made))), number })
    }

    /// Returns the number of the transfer, or `None` if the other side refuses it.
    pub(crate) fn send(&self, stranger: u64, number: u64) -> CuResult<Option<u64>> {
        let stranger = Stranger::with_number(stranger);
        let sent = self.memory.claim(self.offset, self.size, stranger, number);
        let sent = sent.map_err(|error| of_error(&error))?;
        Ok(sent.map(|event| enter(Transfer::Outgoing(event))))
    }
}

fn enter(transfer: Transfer) -> u64 {
    let number = new_number();
    TRANSFERS.lock().get_or_insert_default().insert(number, transfer);
    number
}

/// Takes back a grant that nobody has claimed, and forgets it. Returns whether it did.
pub(crate) fn revoke(transfer: u64) -> CuResult<bool> {
    let grant = match TRANSFERS.lock().as_ref().and_then(|all| all.get(&transfer)) {
        Some(Transfer::Incoming(grant)) => grant.clone(),
        _ => return Err(CUDA_ERROR_INVALID_HANDLE),
    };
    let is_gone = grant.revoke().map_err(|error| of_error(&error))?;
    if is_gone {
        forget(transfer);
    }
    Ok(is_gone)
}

/// Returns whether a transfer has ended, or waits for its end. Forgets a transfer that has ended.
///
/// # Errors
/// If the transfer has failed.
pub(crate) fn end(transfer: u64, waits: bool) -> CuResult<bool> {
    let event = match TRANSFERS.lock().as_ref().and_then(|all| all.get(&transfer)) {
        Some(Transfer::Incoming(grant)) => grant.arrival().clone(),
        Some(Transfer::Outgoing(event)) => event.clone(),
        None => return Err(CUDA_ERROR_INVALID_HANDLE),
    };
    let Some(status) = (if waits { Some(event.wait()) } else { event.poll() }) else {
        return Ok(false);
    };
    forget(transfer);
    require(!status.is_error(), of_status(status))?;
    Ok(true)
}

fn forget(transfer: u64) {
    // Dropped outside of the lock.
    let forgotten = TRANSFERS.lock().as_mut().and_then(|all| all.remove(&transfer));
    drop(forgotten);
}
