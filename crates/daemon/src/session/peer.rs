//! Links to the other workers of the same client.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{
    Address, Body, Key, LinkError, Outbox, Patience, Receiver, Sender, Side, Stream,
};
use penstock_process::Lock;
use penstock_wire::calls::{Serve, to_client, to_peer, to_worker};
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::{Role, TICKET_BYTES};
use penstock_wire::id::kind;
use penstock_wire::limits::HELLO_MS_MAX;
use penstock_wire::{FrameError, Id, Payload, Status, frame, limits};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Session, Shared};

/// What a worker needs to reach other workers and to be reached.
#[derive(Clone, Default)]
pub struct PeerSetup {
    /// The pool's key, for other nodes over TCP.
    pub key: Option<Arc<Key>>,
    pub admissions: Option<Arc<dyn Admissions>>,
}

/// Admits peers: the daemon, which has the listening sockets.
pub trait Admissions: Send + Sync {
    /// Asks the daemon to hand the peer that brings this ticket to this worker. The answer comes
    /// through [`Shared::admitted`]. Returns `false` if nobody can be asked.
    fn admit(&self, ticket: &[u8; TICKET_BYTES]) -> bool;

    /// Makes the daemon turn away a peer that brings this ticket from now on.
    fn forget(&self, ticket: &[u8; TICKET_BYTES]);
}

/// Most peers of a session, for the nodes of a large cluster; each peer is a link with a thread.
const PEERS_MAX: usize = 1024;

/// Most messages kept for a peer that is not linked yet: one for each event. A client links its
/// workers before it lets them tell each other anything.
const JOBS_MAX: usize = limits::EVENTS_PER_SESSION_MAX;

/// Most addresses of an invitation that are tried: each may take [`HELLO_MS_MAX`] of its thread's
/// time. A daemon listens on one or two; more are names of a host with many networks.
const ADDRESSES_MAX: usize = 16;

/// The other workers of the client.
#[derive(Default)]
pub(crate) struct Peers {
    setup: PeerSetup,
    table: Lock<FxHashMap<Id<kind::Peer>, Peer>>,
    tickets: Lock<FxHashMap<[u8; TICKET_BYTES], Admission>>,
    /// Peers that a thread is trying to reach; each has at most one thread.
    connecting: Lock<FxHashSet<Id<kind::Peer>>>,
}

enum Peer {
    /// Not linked yet; the messages wait.
    Awaited(Vec<Job>),
    Linked(Outbox),
    Lost,
}

type Job = Box<dyn FnOnce(&Outbox) + Send>;

/// Whom a ticket admits.
#[derive(Clone, Copy)]
pub(crate) enum Guest {
    /// Another worker of the client.
    Peer(Id<kind::Peer>),
    /// The same worker again, as a member of a heap.
    Member(Id<kind::Heap>, u32),
}

struct Admission {
    guest: Guest,
    /// Answered when the daemon knows the ticket.
    request: Id<kind::Request>,
}

impl Peers {
    pub(crate) fn new(setup: PeerSetup) -> Self {
        Self { setup, ..Self::default() }
    }

    /// Sends a message to a peer, now or when it is linked; drops it if the peer is lost.
    pub(crate) fn post(&self, peer: Id<kind::Peer>, job: impl FnOnce(&Outbox) + Send + 'static) {
        let mut table = self.table.lock();
        match table.get_mut(&peer) {
            Some(Peer::Awaited(jobs)) if jobs.len() < JOBS_MAX => jobs.push(Box::new(job)),
            Some(Peer::Linked(outbox)) => {
                let outbox = outbox.clone();
                drop(table);
                job(&outbox);
            }
            // Dropped outside the lock: the job may hold memory on its way.
            Some(Peer::Awaited(_) | Peer::Lost) | None => drop(table),
        }
    }

    /// Whether a message can reach this peer, now or later.
    pub(crate) fn has(&self, peer: Id<kind::Peer>) -> bool {
        matches!(self.table.lock().get(&peer), Some(Peer::Awaited(_) | Peer::Linked(_)))
    }

    fn expect(&self, peer: Id<kind::Peer>) -> Result<(), FrameError> {
        let mut table = self.table.lock();
        match table.get(&peer) {
            // If one direction failed, the client tries the other.
            Some(Peer::Awaited(_)) => return Ok(()),
            Some(Peer::Linked(_)) => return Err(FrameError::BadId("a peer")),
            Some(Peer::Lost) | None if peer.is_none() => return Err(FrameError::BadId("a peer")),
            Some(Peer::Lost) | None => {}
        }
        if table.len() >= PEERS_MAX {
            return Err(FrameError::Limit("PEERS_MAX"));
        }
        table.insert(peer, Peer::Awaited(Vec::new()));
        Ok(())
    }

    /// Sends the waiting messages to a peer that is linked now, before any others.
    fn link(&self, peer: Id<kind::Peer>, outbox: &Outbox) {
        loop {
            let jobs = match self.table.lock().get_mut(&peer) {
                Some(Peer::Awaited(jobs)) if !jobs.is_empty() => std::mem::take(jobs),
                // Lost already, noticed first by its reader.
                Some(Peer::Lost) | None => return outbox.close(),
                Some(state) => {
                    *state = Peer::Linked(outbox.clone());
                    return;
                }
            };
            // Without the lock: a job may end events, whose followers may post.
            for job in jobs {
                job(outbox);
            }
        }
    }

    fn set(&self, peer: Id<kind::Peer>, state: Peer) -> Option<Peer> {
        self.table.lock().insert(peer, state)
    }

    pub(crate) fn close(&self) {
        let peers = std::mem::take(&mut *self.table.lock());
        for peer in peers.into_values() {
            if let Peer::Linked(outbox) = peer {
                outbox.close();
            }
        }
    }
}

impl Shared {
    /// Notes that the daemon knows a ticket.
    pub fn admitted(&self, ticket: &[u8; TICKET_BYTES]) {
        let request = self.peers.tickets.lock().get(ticket).map(|admission| admission.request);
        if let Some(request) = request {
            self.reply(request, &Ok(()));
        }
    }

    /// Links another worker that has come with a ticket.
    pub fn arrived(self: &Arc<Self>, ticket: &[u8; TICKET_BYTES], stream: Stream) {
        // A ticket is good once.
        let admission = self.peers.tickets.lock().remove(ticket);
        let Some(admission) = admission else { return };
        let peer = match admission.guest {
            Guest::Peer(peer) => peer,
            Guest::Member(heap, member) => return self.member_arrived(heap, member, stream),
        };
        let linked = penstock_link::establish(stream, 0, Side::Worker, to_peer::check);
        match linked.and_then(|link| self.link_peer(peer, link)) {
            Ok(()) => {}
            Err(error) => {
                self.complain("a peer did not come", &error);
                self.lose_peer(peer);
            }
        }
    }

    /// Forgets the tickets of a heap's members that will not come.
    pub(super) fn forget_members(&self, heap: Id<kind::Heap>) {
        let mut tickets = self.peers.tickets.lock();
        tickets.retain(|ticket, admission| {
            let goes = matches!(admission.guest, Guest::Member(of, _) if of == heap);
            if let Some(daemon) = self.peers.setup.admissions.as_ref().filter(|_| goes) {
                daemon.forget(ticket);
            }
            !goes
        });
    }

    /// Makes the daemon admit the bearer of `ticket`. Returns a status if nobody can be asked, or
    /// if there are too many tickets for another member of a heap.
    pub(super) fn admit(
        &self,
        ticket: [u8; TICKET_BYTES],
        guest: Guest,
        request: Id<kind::Request>,
    ) -> Result<Result<(), Status>, FrameError> {
        let peers = &self.peers;
        {
            let mut tickets = peers.tickets.lock();
            // The daemon keeps no more tickets of one worker, and would not answer.
            if tickets.len() >= PEERS_MAX {
                return match guest {
                    Guest::Peer(_) => Err(FrameError::Limit("PEERS_MAX")),
                    // Heaps come and go, so this is only a temporary excess.
                    Guest::Member(..) => Ok(Err(Status::OUT_OF_RESOURCES)),
                };
            }
            if tickets.insert(ticket, Admission { guest, request }).is_some() {
                return Err(FrameError::BadPayload("a ticket that was told before"));
            }
        }
        let asked = peers.setup.admissions.as_ref().is_some_and(|daemon| daemon.admit(&ticket));
        if !asked {
            peers.tickets.lock().remove(&ticket);
        }
        Ok(if asked { Ok(()) } else { Err(Status::INVALID_OPERATION) })
    }

    /// Starts to serve a peer whose link is established.
    pub(crate) fn link_peer(
        self: &Arc<Self>,
        peer: Id<kind::Peer>,
        (sender, receiver): (Sender, Receiver),
    ) -> Result<(), LinkError> {
        let outbox = Outbox::new(sender);
        let shared = self.clone();
        let serve = move || shared.serve_peer(peer, receiver);
        thread::Builder::new().name("peer".into()).spawn(serve).map_err(|source| {
            LinkError::System { doing: "starting a thread for a peer", source }
        })?;
        self.peers.link(peer, &outbox);
        Ok(())
    }

    fn serve_peer(self: &Arc<Self>, peer: Id<kind::Peer>, mut receiver: Receiver) {
        let mut from = FromPeer { shared: self, peer };
        let error = loop {
            let received = receiver.receive(Patience::Forever, &mut |frame, payload| {
                penstock_trial::delay(penstock_trial::Place::TransferArrives);
                to_peer::dispatch(&mut from, frame, payload)
            });
            if let Err(error) = received {
                break error;
            }
        };
        match error {
            // It has most likely ended with the client; this session is about to end as well.
            LinkError::Closed => {}
            error => self.complain("a peer is lost", &error),
        }
        // Reported before the lost ends: a client that hears of those must not use this peer again.
        self.outbox.post(&to_client::PeerLost { peer }, &[], Body::None);
        self.lose_peer(peer);
    }

    fn lose_peer(self: &Arc<Self>, peer: Id<kind::Peer>) {
        if let Some(Peer::Linked(outbox)) = self.peers.set(peer, Peer::Lost) {
            outbox.close();
        }
        self.transfers.lose(self, peer);
        self.events.lose(peer);
    }

    /// Opens a link to the worker that an invitation names.
    fn open_peer(
        self: &Arc<Self>,
        peer: Id<kind::Peer>,
        invitation: &PeerInvitation,
    ) -> Result<(), LinkError> {
        let link = self.reach(invitation, |stream| {
            penstock_link::establish(stream, 0, Side::Client, to_peer::check)
        })?;
        self.link_peer(peer, link)
    }

    /// Connects to the worker of an invitation, at the first address where `meet` succeeds.
    pub(super) fn reach<T, E: From<LinkError>>(
        &self,
        invitation: &PeerInvitation,
        mut meet: impl FnMut(Stream) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut failure = E::from(LinkError::Closed);
        for address in invitation.addresses.iter().take(ADDRESSES_MAX) {
            let opened = address.parse::<Address>().and_then(|address| {
                let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
                let key = self.peers.setup.key.as_deref();
                penstock_link::open(&address, Role::Peer, Some(invitation.ticket), key, deadline)
            });
            match opened.map_err(E::from).and_then(|opened| meet(opened.stream)) {
                Ok(met) => return Ok(met),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Serves the calls of another worker.
struct FromPeer<'a> {
    shared: &'a Arc<Shared>,
    peer: Id<kind::Peer>,
}

impl Serve<to_peer::PeerEvent> for FromPeer<'_> {
    fn serve(
        &mut self,
        call: &to_peer::PeerEvent,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.shared.events.told_by(self.peer, call.event, Status(call.status.get()))
    }
}

impl Serve<to_peer::TransferData> for FromPeer<'_> {
    fn serve(
        &mut self,
        call: &to_peer::TransferData,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.shared.transfer_came((call.transfer, self.peer), Status(call.status.get()), payload)
    }
}

impl Serve<to_worker::ConnectPeer> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ConnectPeer,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let invitation: PeerInvitation = frame::decode("ConnectPeer", &payload.read_all()?)?;
        self.shared.peers.expect(call.peer)?;
        if !self.shared.peers.connecting.lock().insert(call.peer) {
            // Otherwise a client could take all threads of its user with many calls.
            return Err(FrameError::BadId("a peer that is being reached"));
        }
        let (shared, request, peer) = (self.shared.clone(), call.request, call.peer);
        let connect = move || {
            let opened = shared.open_peer(peer, &invitation);
            shared.peers.connecting.lock().remove(&peer);
            match opened {
                Ok(()) => shared.reply(request, &Ok(())),
                Err(error) => {
                    shared.complain("no link to a peer", &error);
                    shared.lose_peer(peer);
                    shared.reply::<()>(request, &Err(Status::NODE_LOST));
                }
            }
        };
        if thread::Builder::new().name("connect".into()).spawn(connect).is_err() {
            self.shared.peers.connecting.lock().remove(&call.peer);
            self.shared.lose_peer(call.peer);
            self.shared.reply::<()>(call.request, &Err(Status::OUT_OF_RESOURCES));
        }
        Ok(())
    }
}

impl Serve<to_worker::AdmitPeer> for Session {
    fn serve(
        &mut self,
        call: &to_worker::AdmitPeer,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let ticket =
            payload.read_all()?.try_into().map_err(|_| FrameError::BadPayload("AdmitPeer"))?;
        self.shared.peers.expect(call.peer)?;
        if let Err(status) = self.shared.admit(ticket, Guest::Peer(call.peer), call.request)? {
            self.shared.lose_peer(call.peer);
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}

impl fmt::Debug for PeerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSetup").field("key", &self.key.is_some()).finish_non_exhaustive()
    }
}
