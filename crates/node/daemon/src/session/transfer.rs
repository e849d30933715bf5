//! Transfers of a memory object's content to this worker, from the moment at which one end is known
//! until both are.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{HomeBytes, Staged};
use penstock_process::Lock;
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, limits};
use rustc_hash::FxHashMap;

use super::event::Event;
use super::pieces::Area;

/// Key of a transfer to this worker: its id, and the peer that sends the content (none for another
/// platform of this worker). Content from another peer under the same id belongs to another
/// transfer, even if it comes before the client names the target.
pub(super) type TransferKey = (Id<kind::Transfer>, Id<kind::Peer>);

/// Transfers to this worker.
#[derive(Default)]
pub(crate) struct Transfers {
    table: Lock<FxHashMap<TransferKey, IncomingTransfer>>,
}

/// A transfer of which only one end is known.
#[derive(Default)]
pub(super) struct IncomingTransfer {
    /// TransferTarget of the content, once known.
    pub(super) target: Option<TransferTarget>,
    /// Whether the target's wait list has ended.
    pub(super) ready: bool,
    /// Content that came before it could be used.
    pub(super) content: Option<Result<Content, Status>>,
}

pub(super) struct TransferTarget {
    pub(super) mem: device::Mem,
    pub(super) area: Area,
    pub(super) event: Arc<Event>,
}

/// Content of a memory object, on its way.
pub(super) enum Content {
    Staged(Staged),
    /// The source's own memory, in this process.
    Home(HomeBytes),
}

impl Content {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Staged(bytes) => bytes.len(),
            Self::Home(bytes) => bytes.len(),
        }
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Staged(bytes) => bytes,
            Self::Home(bytes) => bytes.as_ref(),
        }
    }
}

impl Transfers {
    /// Removes the transfers that a lost peer would have sent. Returns their targets, whose events
    /// the caller ends. Also drops the content that came from this peer before the client named the
    /// target: such a target fails when the client names it.
    pub(super) fn lose(&self, peer: Id<kind::Peer>) -> Vec<TransferTarget> {
        let lost: Vec<IncomingTransfer> = {
            let mut table = self.table.lock();
            let goes = |it: &IncomingTransfer| it.content.is_none() || it.target.is_none();
            let of_peer = table.iter().filter(|((_, from), it)| *from == peer && goes(it));
            let names: Vec<_> = of_peer.map(|(name, _)| *name).collect();
            names.iter().filter_map(|name| table.remove(name)).collect()
        };
        lost.into_iter().filter_map(|it| it.target).collect()
    }

    /// Fails if there is no room for one more transfer.
    pub(super) fn check_room(&self) -> Result<(), FrameError> {
        if self.table.lock().len() >= limits::OBJECTS_PER_SESSION_MAX {
            return Err(FrameError::Limit("OBJECTS_PER_SESSION_MAX"));
        }
        Ok(())
    }

    /// Returns the number of staged bytes that wait for their targets.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let staged = |incoming: &IncomingTransfer| match &incoming.content {
            Some(Ok(Content::Staged(bytes))) => bytes.len() as u64,
            _ => 0,
        };
        self.table.lock().values().map(staged).sum()
    }

    /// Copies a source's content for a target that is not ready. Fails instead of waiting for room.
    pub(super) fn keep(&self, bytes: &HomeBytes) -> Result<Staged, Status> {
        if self.waiting_bytes().saturating_add(bytes.len() as u64) > limits::STAGED_BYTES_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        copied(bytes)
    }

    /// Changes a transfer's entry; removes and returns it if nothing is missing.
    pub(super) fn update(
        &self,
        name: TransferKey,
        change: impl FnOnce(&mut IncomingTransfer),
    ) -> Option<IncomingTransfer> {
        let mut table = self.table.lock();
        change(table.entry(name).or_default());
        take_whole(&mut table, name)
    }

    /// Notes that nothing uses the target of a transfer any more; removes and returns the transfer
    /// if nothing is missing. Does nothing if its peer was lost meanwhile.
    pub(super) fn set_ready(&self, name: TransferKey) -> Option<IncomingTransfer> {
        let mut table = self.table.lock();
        table.get_mut(&name)?.ready = true;
        take_whole(&mut table, name)
    }

    /// Enters a transfer again whose target was taken.
    pub(super) fn put_back(&self, name: TransferKey, target: TransferTarget) {
        let incoming = IncomingTransfer { target: Some(target), ready: true, content: None };
        self.table.lock().insert(name, incoming);
    }

    /// Removes and returns the target of a transfer whose bytes can go there at once.
    pub(super) fn take_ready(&self, name: TransferKey) -> Option<TransferTarget> {
        let mut table = self.table.lock();
        let ready = table.get(&name).is_some_and(|it| it.ready && it.target.is_some());
        if ready { table.remove(&name).and_then(|it| it.target) } else { None }
    }
}

/// Removes and returns a transfer if nothing is missing.
fn take_whole(
    table: &mut FxHashMap<TransferKey, IncomingTransfer>,
    name: TransferKey,
) -> Option<IncomingTransfer> {
    let incoming = table.get(&name)?;
    let whole = incoming.target.is_some() && incoming.ready && incoming.content.is_some();
    if whole { table.remove(&name) } else { None }
}

pub(super) fn copied(bytes: &HomeBytes) -> Result<Staged, Status> {
    let mut staged = Staged::new(bytes.len())?;
    bytes.read(&mut staged)?;
    Ok(staged)
}
