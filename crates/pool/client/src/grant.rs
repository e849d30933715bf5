//! Bytes that go from the worker of one client to the worker of another client. The receiving
//! client grants a range of its memory, and the sending client claims the grant.
//!
//! What the two clients tell each other (an invitation, and the number of a grant) goes a way of
//! their own, for example a message of MPI.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_process::variable;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::{GuestInvitation, PeerInvitation};
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, U64, frame};

use crate::error::{Error, Result, refused};
use crate::event::Event;
use crate::memory::Memory;
use crate::peer::{is_local, random_ticket};
use crate::session::Session;

/// The worker of another client, as a worker of this client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger(Id<kind::Peer>);

/// A range of memory that the worker of another client may write once.
#[derive(Debug)]
pub struct Grant {
    session: Arc<Session>,
    transfer: Id<kind::Transfer>,
    peer: Id<kind::Peer>,
    arrival: Event,
}

impl Stranger {
    /// Makes a name that no worker has yet. The names of nodes are numbers below it.
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        Self(Id::new(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the number of the name.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.get()
    }

    /// Returns the name with this number.
    #[must_use]
    pub fn with_number(number: u64) -> Self {
        Self(Id::new(number))
    }
}

impl Grant {
    /// Returns the number by which the other client claims the grant.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.transfer.get()
    }

    /// Returns the event that ends when the bytes are in the memory, or when they cannot come any
    /// more.
    #[must_use]
    pub fn arrival(&self) -> &Event {
        &self.arrival
    }

    /// Takes the grant back. Returns whether it was not claimed before: then nobody writes the
    /// memory any more. Otherwise the end of [`Grant::arrival`] tells when nobody does.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn revoke(&self) -> Result<bool> {
        let (transfer, peer) = (self.transfer, self.peer);
        let revoke = to_worker::RevokeGrant { request: Id::NONE, transfer, peer };
        self.session.request(revoke, &[]).wait()
    }
}

impl Memory {
    /// Returns a number of the worker that has this memory. Only this process knows the number.
    ///
    /// # Errors
    /// If the memory has no single worker.
    pub fn worker(&self) -> Result<u64> {
        self.only_session().map(|session| session.node() as u64)
    }

    /// Lets the worker of another client reach the worker of this memory. Returns its name, and the
    /// invitation for [`Memory::visit`] of the other client.
    ///
    /// # Errors
    /// If the node is lost, or if links between workers are turned off.
    pub fn invite(&self) -> Result<(Stranger, Vec<u8>)> {
        let session = self.only_session()?;
        let (boot, addresses) = reach(session)?;
        let ticket = random_ticket().ok_or_else(|| refused("the system gives no random bytes"))?;
        let stranger = Stranger::next();
        let admit = to_worker::AdmitGuest { request: Id::NONE, peer: stranger.0 };
        session.request(admit, &ticket).wait()?;
        let invitation = PeerInvitation { addresses, ticket };
        Ok((stranger, frame::encode(&GuestInvitation { boot, invitation })))
    }

    /// Has the worker of this memory open a link to the worker that an invitation names. Returns
    /// the name of that worker.
    ///
    /// # Errors
    /// If the worker cannot be reached, or if links between workers are turned off.
    pub fn visit(&self, invitation: &[u8]) -> Result<Stranger> {
        let session = self.only_session()?;
        let (here, _) = reach(session)?;
        let GuestInvitation { boot, mut invitation } =
            frame::decode("GuestInvitation", invitation)?;
        // Addresses of the same host come first, because workers share memory over them.
        let (local, other): (Vec<_>, Vec<_>) =
            invitation.addresses.into_iter().partition(|it| is_local(it));
        let local = if boot == here { local } else { Vec::new() };
        invitation.addresses = local.into_iter().chain(other).collect();
        let stranger = Stranger::next();
        let connect = to_worker::ConnectHost { request: Id::NONE, peer: stranger.0 };
        session.request(connect, &frame::encode(&invitation)).wait()?;
        Ok(stranger)
    }

    /// Lets `stranger` write at most `size` bytes from `offset`, once. All earlier commands that
    /// use these bytes must have ended.
    ///
    /// # Errors
    /// If the node or the stranger is lost.
    pub fn grant(&self, offset: u64, size: u64, stranger: Stranger) -> Result<Grant> {
        let session = self.only_session()?;
        let arrival = Event::of_command(session, crate::ids::next_id(), true);
        arrival.expect_at(session)?;
        let (transfer, peer) = (crate::ids::next_id(), stranger.0);
        let (mem, event) = (self.id_at(0), arrival.0.id);
        let (offset, size) = (U64::new(offset), U64::new(size));
        let request = Id::NONE;
        let grant = to_worker::GrantMem { request, mem, event, transfer, peer, offset, size };
        // The other client is told of the grant only when its worker can claim it.
        session.request(grant, &[]).wait()?;
        Ok(Grant { session: session.clone(), transfer, peer, arrival })
    }

    /// Claims the grant with this number at `stranger`, and has `size` bytes from `offset` sent
    /// there. All earlier commands that write these bytes must have ended. The returned event ends
    /// when the bytes may change again. Returns `None` if nothing is sent.
    ///
    /// # Errors
    /// If the node of this memory is lost.
    pub fn claim(
        &self,
        offset: u64,
        size: u64,
        stranger: Stranger,
        number: u64,
    ) -> Result<Option<Event>> {
        let session = self.only_session()?;
        let departure = Event::of_command(session, crate::ids::next_id(), true);
        departure.expect_at(session)?;
        let claim = to_worker::ClaimGrant {
            request: Id::NONE,
            mem: self.id_at(0),
            event: departure.0.id,
            transfer: Id::new(number),
            peer: stranger.0,
            offset: U64::new(offset),
            size: U64::new(size),
        };
        match session.request(claim, &[]).wait() {
            Ok(()) => Ok(Some(departure)),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the session of the only place. Memory of several places has no single worker.
    fn only_session(&self) -> Result<&Arc<Session>> {
        let [place] = self.context().places() else {
            return Err(refused("memory of several nodes or platforms cannot be granted"));
        };
        self.create_in(0)?;
        Ok(place.session())
    }
}

/// Returns the boot id of a session's host, and the addresses of its daemon.
fn reach(session: &Session) -> Result<(String, Vec<String>)> {
    if !variable::PEERS.is_on() {
        return Err(refused("PENSTOCK_PEERS=off keeps workers apart"));
    }
    let known = session.peers().and_then(|peers| peers.reach(session.node()));
    known.ok_or(Error::Refused { node: session.name().into(), status: Status::NODE_LOST })
}
