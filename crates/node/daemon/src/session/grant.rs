//! Memory of this session that workers of other clients may write, and memory of other clients that
//! this session writes.
//!
//! The receiving side grants, and the sending side claims. A worker of another client knows only
//! the ids of grants. It can use each of them once, over the link for which the grant was made, and
//! it can do nothing else. So this side must not trust any byte of it.

use std::sync::Arc;

use penstock_link::Outbox;
use penstock_process::Lock;
use penstock_wire::calls::{to_guest, to_host};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, limits};
use rustc_hash::FxHashMap;

use super::event::Event;
use super::pieces::Area;
use super::transfer::{TransferKey, TransferTarget};

/// The grants and claims of a session, and its links to workers of other clients.
#[derive(Default)]
pub(crate) struct Grants {
    tables: Lock<Tables>,
}

#[derive(Default)]
struct Tables {
    links: FxHashMap<Id<kind::Peer>, StrangerLink>,
    grants: FxHashMap<TransferKey, Grant>,
    claims: FxHashMap<TransferKey, Claim>,
}

/// A link to a worker of another client. A link that is lost is not kept.
enum StrangerLink {
    Awaited,
    Open(Outbox, Part),
}

/// What this side does on a link between workers of two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It grants.
    Host,
    /// It claims grants.
    Guest,
}

/// Memory that a peer may write once.
struct Grant {
    target: TransferTarget,
    is_claimed: bool,
}

/// A grant of another session that this session wants to use.
pub(super) struct Claim {
    pub(super) mem: penstock_device::Mem,
    pub(super) area: Area,
    pub(super) event: Arc<Event>,
    /// Answered with the answer of the peer.
    pub(super) request: Id<kind::Request>,
}

/// A claim of which the peer is not told.
pub(super) struct RefusedClaim {
    pub(super) claim: Claim,
    pub(super) status: Status,
}

/// Everything that waited for a lost peer.
pub(super) struct Abandoned {
    pub(super) targets: Vec<TransferTarget>,
    pub(super) claims: Vec<Claim>,
}

impl Grants {
    /// Notes that a link will come. Returns a status if there are too many: how many a client needs
    /// depends on the clients of others, so this is no mistake of the client.
    pub(super) fn expect(&self, peer: Id<kind::Peer>) -> Result<Result<(), Status>, FrameError> {
        let links = &mut self.tables.lock().links;
        if peer.is_none() || links.contains_key(&peer) {
            return Err(FrameError::BadId("a peer"));
        }
        if links.len() >= limits::GRANT_LINKS_MAX {
            return Ok(Err(Status::OUT_OF_RESOURCES));
        }
        links.insert(peer, StrangerLink::Awaited);
        Ok(Ok(()))
    }

    /// Notes an established link. Closes the link if it is already lost.
    pub(super) fn open(&self, peer: Id<kind::Peer>, outbox: Outbox, part: Part) {
        match self.tables.lock().links.get_mut(&peer) {
            Some(link @ StrangerLink::Awaited) => *link = StrangerLink::Open(outbox, part),
            _ => outbox.close(),
        }
    }

    /// Returns the outbox of an open link.
    pub(super) fn outbox(&self, peer: Id<kind::Peer>) -> Option<Outbox> {
        match self.tables.lock().links.get(&peer) {
            Some(StrangerLink::Open(outbox, _)) => Some(outbox.clone()),
            _ => None,
        }
    }

    /// Enters a grant, unless the peer is lost or was never expected, or there are too many grants.
    pub(super) fn grant(
        &self,
        key: TransferKey,
        target: TransferTarget,
    ) -> Result<Result<(), Status>, FrameError> {
        let mut tables = self.tables.lock();
        if tables.grants.contains_key(&key) || key.0.is_none() {
            return Err(FrameError::BadId("a transfer"));
        }
        if tables.grants.len() >= limits::GRANTS_PER_SESSION_MAX {
            return Ok(Err(Status::OUT_OF_RESOURCES));
        }
        if !tables.links.contains_key(&key.1) {
            return Ok(Err(Status::NODE_LOST));
        }
        tables.grants.insert(key, Grant { target, is_claimed: false });
        Ok(Ok(()))
    }

    /// Claims a grant for the peer in `key`. After a success the grant cannot be revoked, and the
    /// peer must send exactly `size` bytes.
    pub(super) fn claim(&self, key: TransferKey, size: u64) -> Result<(), Status> {
        let mut tables = self.tables.lock();
        let grant = tables.grants.get_mut(&key).ok_or(Status::INVALID_OPERATION)?;
        let offset = grant.target.area.linear().ok_or(Status::INVALID_MEM_OBJECT)?;
        if grant.is_claimed {
            return Err(Status::INVALID_OPERATION);
        }
        if size == 0 || size > grant.target.area.bytes || size > limits::STAGED_BYTES_MAX {
            return Err(Status::INVALID_VALUE);
        }
        grant.target.area = Area::bytes(&grant.target.mem, offset, size)?;
        grant.is_claimed = true;
        Ok(())
    }

    /// Removes and returns the target of a claimed grant.
    pub(super) fn take_claimed(&self, key: TransferKey) -> Option<TransferTarget> {
        let mut tables = self.tables.lock();
        if !tables.grants.get(&key)?.is_claimed {
            return None;
        }
        tables.grants.remove(&key).map(|grant| grant.target)
    }

    /// Removes and returns the target of a grant that is not claimed.
    pub(super) fn revoke(&self, key: TransferKey) -> Option<TransferTarget> {
        let mut tables = self.tables.lock();
        if tables.grants.get(&key)?.is_claimed {
            return None;
        }
        tables.grants.remove(&key).map(|grant| grant.target)
    }

    /// Enters an own claim. Returns it with a status if the peer is not linked, or if there are too
    /// many claims.
    pub(super) fn begin_claim(
        &self,
        key: TransferKey,
        claim: Claim,
    ) -> Result<Result<Outbox, RefusedClaim>, FrameError> {
        let mut tables = self.tables.lock();
        if tables.claims.contains_key(&key) {
            return Err(FrameError::BadId("a transfer"));
        }
        if tables.claims.len() >= limits::GRANTS_PER_SESSION_MAX {
            return Ok(Err(RefusedClaim { claim, status: Status::OUT_OF_RESOURCES }));
        }
        let Some(StrangerLink::Open(outbox, _)) = tables.links.get(&key.1) else {
            return Ok(Err(RefusedClaim { claim, status: Status::NODE_LOST }));
        };
        let outbox = outbox.clone();
        tables.claims.insert(key, claim);
        Ok(Ok(outbox))
    }

    /// Removes and returns an own claim that the peer has answered.
    pub(super) fn end_claim(&self, key: TransferKey) -> Option<Claim> {
        self.tables.lock().claims.remove(&key)
    }

    /// Notes that a link has ended. Returns what waited for it, for the caller to end.
    pub(super) fn lose(&self, peer: Id<kind::Peer>) -> Abandoned {
        let mut tables = self.tables.lock();
        let link = tables.links.remove(&peer);
        let of_peer = |key: &TransferKey| key.1 == peer;
        let grants = tables.grants.extract_if(|key, _| of_peer(key));
        let targets = grants.map(|(_, grant)| grant.target).collect();
        let claims = tables.claims.extract_if(|key, _| of_peer(key));
        let abandoned = Abandoned { targets, claims: claims.map(|(_, claim)| claim).collect() };
        // Without the lock: the end of what an outbox holds may end events, and so enter a driver.
        drop(tables);
        if let Some(StrangerLink::Open(outbox, _)) = link {
            outbox.close();
        }
        abandoned
    }

    /// Sends a sign of life over all links.
    pub(super) fn tend(&self) {
        let tables = self.tables.lock();
        let open = tables.links.values().filter_map(|link| match link {
            StrangerLink::Open(outbox, part) => Some((outbox.clone(), *part)),
            StrangerLink::Awaited => None,
        });
        let open: Vec<(Outbox, Part)> = open.collect();
        drop(tables);
        for (outbox, part) in open {
            _ = match part {
                Part::Host => outbox.tend(&to_guest::Beat {}),
                Part::Guest => outbox.tend(&to_host::Beat {}),
            };
        }
    }

    pub(super) fn close(&self) {
        let links = std::mem::take(&mut self.tables.lock().links);
        // Without the lock, as in `lose`.
        for link in links.into_values() {
            if let StrangerLink::Open(outbox, _) = link {
                outbox.close();
            }
        }
    }
}
