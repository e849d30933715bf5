//! The other workers of the same client: which are linked, and which may come with a ticket.

use std::fmt;
use std::sync::Arc;

use penstock_link::{LinkError, Outbox, Stream};
use penstock_process::Lock;
use penstock_wire::calls::to_peer;
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, limits};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a worker needs to reach other workers and to be reached.
#[derive(Clone, Default)]
pub struct PeerSetup {
    /// Without it there are no links to other nodes.
    pub dialer: Option<Arc<dyn Dialer>>,
    pub admissions: Option<Arc<dyn Admissions>>,
}

/// Connects to other nodes: the daemon, which has the keys.
pub trait Dialer: Send + Sync {
    /// Connects to the worker that has admitted this ticket. Waits for a limited time.
    ///
    /// # Errors
    /// Fails if the daemon may not connect there, or no node of the pool answers.
    fn dial(&self, address: &str, ticket: &[u8; TICKET_BYTES]) -> Result<Stream, LinkError>;
}

/// Admits peers: the daemon, which has the listening sockets.
pub trait Admissions: Send + Sync {
    /// Asks the daemon to hand the peer that brings this ticket to this worker. The answer comes
    /// through `SharedSession::admitted`. Returns `false` if nobody can be asked.
    fn admit(&self, ticket: &[u8; TICKET_BYTES]) -> bool;

    /// Makes the daemon turn away a peer that brings this ticket from now on.
    fn forget(&self, ticket: &[u8; TICKET_BYTES]);
}

/// Most peers of a session, for the nodes of a large cluster; each peer is a link with a thread.
const PEERS_MAX: usize = 1024;

/// Most messages kept for a peer that is not linked yet: one for each event. A client links its
/// workers before it lets them tell each other anything.
const JOBS_MAX: usize = limits::EVENTS_PER_SESSION_MAX;

/// Most addresses of an invitation that are tried: each may take [`limits::HELLO_MS_MAX`] of its
/// thread's time. A daemon listens on one or two; more are names of a host with many networks.
const ADDRESSES_MAX: usize = 16;

/// Looks after which a ticket is given up that the daemon has not taken. A look comes with each
/// beat, so the daemon had twice [`limits::HELLO_MS_MAX`], as for its connections to other nodes. A
/// number of looks cannot take the time in which this worker was stopped for the daemon's.
const ADMISSION_LOOKS_MAX: u64 = 2 * limits::HELLO_MS_MAX / limits::BEAT_MS + 1;

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
    /// A worker of another client, which claims grants.
    Stranger(Id<kind::Peer>),
}

struct Admission {
    guest: Guest,
    /// Answered when the daemon knows the ticket.
    request: Id<kind::Request>,
    /// Number of looks since the daemon was asked, or `None` if it has answered.
    looks: Option<u64>,
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

    pub(super) fn expect(&self, peer: Id<kind::Peer>) -> Result<(), FrameError> {
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
    pub(super) fn link(&self, peer: Id<kind::Peer>, outbox: &Outbox) {
        loop {
            let mut table = self.table.lock();
            let jobs = match table.get_mut(&peer) {
                Some(Peer::Awaited(jobs)) if !jobs.is_empty() => std::mem::take(jobs),
                // Lost already, noticed first by its reader.
                Some(Peer::Lost) | None => {
                    drop(table);
                    return outbox.close();
                }
                Some(state) => {
                    let before = std::mem::replace(state, Peer::Linked(outbox.clone()));
                    drop(table);
                    drop(before);
                    return;
                }
            };
            // Without the lock: a job, and the end of what an outbox holds, may end events, whose
            // followers may post.
            drop(table);
            for job in jobs {
                job(outbox);
            }
        }
    }

    /// Notes that a peer is lost, and closes its link.
    pub(super) fn lose(&self, peer: Id<kind::Peer>) {
        let before = self.table.lock().insert(peer, Peer::Lost);
        if let Some(Peer::Linked(outbox)) = before {
            outbox.close();
        }
    }

    /// Notes that a thread tries to reach a peer. Returns `false` if another thread does already.
    pub(super) fn begin_connecting(&self, peer: Id<kind::Peer>) -> bool {
        self.connecting.lock().insert(peer)
    }

    /// Notes that no thread tries to reach a peer any longer.
    pub(super) fn end_connecting(&self, peer: Id<kind::Peer>) {
        self.connecting.lock().remove(&peer);
    }

    /// Notes that the daemon knows a ticket. Returns the request that is answered now.
    pub(super) fn admission_request(
        &self,
        ticket: &[u8; TICKET_BYTES],
    ) -> Option<Id<kind::Request>> {
        let mut tickets = self.tickets.lock();
        let admission = tickets.get_mut(ticket)?;
        admission.looks.take().map(|_| admission.request)
    }

    /// Looks for tickets that the daemon has not taken in time, because it is stopped, and forgets
    /// them. Returns whom they were to admit, and the requests.
    pub(super) fn give_up_admissions(&self) -> Vec<(Guest, Id<kind::Request>)> {
        let mut tickets = self.tickets.lock();
        let late = tickets.extract_if(|ticket, admission| {
            let Some(looks) = &mut admission.looks else { return false };
            *looks += 1;
            let is_late = *looks >= ADMISSION_LOOKS_MAX;
            if let Some(daemon) = self.setup.admissions.as_ref().filter(|_| is_late) {
                daemon.forget(ticket);
            }
            is_late
        });
        late.map(|(_, admission)| (admission.guest, admission.request)).collect()
    }

    /// Returns whom a ticket admits. A second call with the same ticket returns `None`.
    pub(super) fn take_guest(&self, ticket: &[u8; TICKET_BYTES]) -> Option<Guest> {
        self.tickets.lock().remove(ticket).map(|admission| admission.guest)
    }

    /// Forgets the tickets of a heap's members that will not come.
    pub(super) fn forget_members(&self, heap: Id<kind::Heap>) {
        let mut tickets = self.tickets.lock();
        tickets.retain(|ticket, admission| {
            let goes = matches!(admission.guest, Guest::Member(of, _) if of == heap);
            if let Some(daemon) = self.setup.admissions.as_ref().filter(|_| goes) {
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
        {
            let mut tickets = self.tickets.lock();
            // The daemon keeps no more tickets of one worker, and would not answer.
            if tickets.len() >= PEERS_MAX {
                return match guest {
                    Guest::Peer(_) => Err(FrameError::Limit("PEERS_MAX")),
                    // Heaps and strangers come and go, so this is only a temporary excess.
                    Guest::Member(..) | Guest::Stranger(_) => Ok(Err(Status::OUT_OF_RESOURCES)),
                };
            }
            let admission = Admission { guest, request, looks: Some(0) };
            if tickets.insert(ticket, admission).is_some() {
                return Err(FrameError::BadPayload("a ticket that was told before"));
            }
        }
        let asked = self.setup.admissions.as_ref().is_some_and(|daemon| daemon.admit(&ticket));
        if !asked {
            self.tickets.lock().remove(&ticket);
        }
        Ok(if asked { Ok(()) } else { Err(Status::INVALID_OPERATION) })
    }

    /// Connects to the worker of an invitation, at the first address where `meet` succeeds.
    pub(super) fn reach<T, E: From<LinkError>>(
        &self,
        invitation: &PeerInvitation,
        mut meet: impl FnMut(Stream) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut failure = E::from(LinkError::Closed);
        for address in invitation.addresses.iter().take(ADDRESSES_MAX) {
            let dialer = self.setup.dialer.as_ref().ok_or(LinkError::Closed);
            let stream = dialer.and_then(|dialer| dialer.dial(address, &invitation.ticket));
            match stream.map_err(E::from).and_then(&mut meet) {
                Ok(met) => return Ok(met),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a sign of life to all peers.
    pub(super) fn tend(&self) {
        let table = self.table.lock();
        let linked = table.values().filter_map(|peer| match peer {
            Peer::Linked(outbox) => Some(outbox.clone()),
            Peer::Awaited(_) | Peer::Lost => None,
        });
        let linked: Vec<Outbox> = linked.collect();
        drop(table);
        for outbox in linked {
            _ = outbox.tend(&to_peer::Beat {});
        }
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

impl fmt::Debug for PeerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSetup").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that takes no ticket. Notes which ones it is to forget.
    #[derive(Default)]
    struct Silent(Lock<Vec<[u8; TICKET_BYTES]>>);

    impl Admissions for Silent {
        fn admit(&self, _: &[u8; TICKET_BYTES]) -> bool {
            true
        }

        fn forget(&self, ticket: &[u8; TICKET_BYTES]) {
            self.0.lock().push(*ticket);
        }
    }

    #[test]
    fn a_ticket_that_the_daemon_does_not_take_is_given_up_once() {
        let daemon = Arc::new(Silent::default());
        let peers = Peers::new(PeerSetup { dialer: None, admissions: Some(daemon.clone()) });
        let [known, late] = [1, 2];
        for number in [known, late] {
            let guest = Guest::Peer(Id::new(u64::from(number)));
            let asked = peers.admit([number; TICKET_BYTES], guest, Id::new(u64::from(number)));
            assert_eq!(asked, Ok(Ok(())));
        }
        let known_request = peers.admission_request(&[known; TICKET_BYTES]);
        assert_eq!(known_request, Some(Id::new(u64::from(known))));
        // However long this worker was stopped, it looks once when it goes on.
        for _ in 1..ADMISSION_LOOKS_MAX {
            assert!(peers.give_up_admissions().is_empty());
        }
        assert!(daemon.0.lock().is_empty());
        let given_up = peers.give_up_admissions();
        let requests: Vec<_> = given_up.into_iter().map(|(_, request)| request).collect();
        assert_eq!(requests, [Id::new(u64::from(late))]);
        assert_eq!(*daemon.0.lock(), [[late; TICKET_BYTES]]);
        for _ in 0..ADMISSION_LOOKS_MAX {
            assert!(peers.give_up_admissions().is_empty());
        }
        // An answer that comes too late answers nothing, and the ticket admits nobody.
        assert_eq!(peers.admission_request(&[late; TICKET_BYTES]), None);
        assert!(peers.take_guest(&[late; TICKET_BYTES]).is_none());
        assert!(peers.take_guest(&[known; TICKET_BYTES]).is_some());
    }
}
