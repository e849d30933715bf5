//! Links between the workers of one client. Over them data and events go from node to node without
//! passing through the client.

use std::fmt;
use std::sync::Arc;

use penstock_link::Address;
use penstock_process::{Lock, variable};
use penstock_wire::calls::to_worker;
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::id::kind;
use penstock_wire::{Id, U32, frame};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::refused;
use crate::error::{Error, Result};
use crate::session::{self, Session, no_refusal};

/// The links between workers, as the client knows them.
pub(crate) struct Links {
    reach: Vec<Reach>,
    /// Whether the workers of two nodes (lower index first) have a link. Absent if it was not tried
    /// yet.
    links: Lock<FxHashMap<(usize, usize), bool>>,
    /// Held while a link is made, which waits for workers. Threads that only ask for links never
    /// wait for that.
    making: Lock<()>,
    /// Links that have ended although both workers may live.
    lost: Lock<FxHashSet<(usize, usize)>>,
    /// For two nodes, the one that opened the connection when members of a heap last met.
    ways: Lock<FxHashMap<(usize, usize), usize>>,
}

/// The ways in which a node can be reached.
struct Reach {
    boot: String,
    addresses: Vec<String>,
}

impl Links {
    /// Makes the table for these nodes. Each is given by the boot id of its host and the addresses
    /// of its daemon.
    pub(crate) fn new(reach: impl Iterator<Item = (String, Vec<String>)>) -> Self {
        Self {
            reach: reach.map(|(boot, addresses)| Reach { boot, addresses }).collect(),
            links: Lock::default(),
            making: Lock::default(),
            lost: Lock::default(),
            ways: Lock::default(),
        }
    }
}

impl session::Peers for Links {
    fn between(&self, from: &Arc<Session>, to: &Arc<Session>) -> Option<Id<kind::Peer>> {
        let key = pair(from.node(), to.node());
        let linked = *self.links.lock().get(&key)?;
        let lost = || self.lost.lock().contains(&key);
        (linked && !lost()).then(|| peer_id(to))
    }

    fn lose(&self, node: usize, peer: Id<kind::Peer>) {
        let other = peer.get().checked_sub(1).and_then(|index| usize::try_from(index).ok());
        // The check keeps a worker from filling the client's memory with names of nodes that do not
        // exist.
        let Some(other) = other.filter(|other| *other < self.reach.len()) else { return };
        self.lost.lock().insert(pair(node, other));
    }

    fn reach(&self, node: usize) -> Option<(String, Vec<String>)> {
        self.reach.get(node).map(|it| (it.boot.clone(), it.addresses.clone()))
    }

    fn link(&self, sessions: &[&Arc<Session>]) {
        for (at, a) in sessions.iter().enumerate() {
            for b in &sessions[at + 1..] {
                let key = pair(a.node(), b.node());
                // Another context must not make the link a second time.
                let _making = self.making.lock();
                let links = || self.links.lock();
                if key.0 != key.1 && !links().contains_key(&key) {
                    let linked =
                        variable::PEERS.is_on() && (self.connect(a, b) || self.connect(b, a));
                    links().insert(key, linked);
                }
            }
        }
    }

    fn link_heap(
        &self,
        heap: Id<kind::Heap>,
        one: (&Arc<Session>, u32),
        other: (&Arc<Session>, u32),
    ) -> Result<()> {
        let between = format!("nodes {} and {}", one.0.name(), other.0.name());
        if !variable::PEERS.is_on() {
            return Err(refused(&format!(
                "PENSTOCK_PEERS=off keeps the workers of {between} apart, and kernels do not reach \
                 each other through the client"
            )));
        }
        // A worker with an address on this worker's host is preferred as the target: over a Unix
        // socket the two share memory.
        let is_near = |from, to| self.addresses(from, to).iter().any(|it| is_local(it));
        let ways = || self.ways.lock();
        let key = pair(one.0.node(), other.0.node());
        // The way that worked last is tried first: each try in vain takes seconds and leaves a
        // ticket.
        let known = ways().get(&key).copied();
        let turn = known.map_or_else(
            || !is_near(one.0, other.0) && is_near(other.0, one.0),
            |from| from == other.0.node(),
        );
        let (one, other) = if turn { (other, one) } else { (one, other) };
        let tried = |from: (&Arc<Session>, u32), to| {
            self.connect_heap(heap, from, to).map(|()| ways().insert(key, from.0.node()))
        };
        let Err(first) = tried(one, other).or_else(|_| tried(other, one)) else { return Ok(()) };
        if let Error::Lost { .. } = first {
            return Err(first);
        }
        Err(refused(&format!("the workers of {between} do not reach each other: {first}")))
    }
}

impl Links {
    fn connect_heap(
        &self,
        heap: Id<kind::Heap>,
        (from, from_index): (&Arc<Session>, u32),
        (to, to_index): (&Arc<Session>, u32),
    ) -> Result<()> {
        let ticket = random_ticket().ok_or_else(|| refused("the system gives no random bytes"))?;
        let admit =
            to_worker::AdmitHeapMember { request: Id::NONE, heap, member: U32::new(from_index) };
        to.request(admit, &ticket).wait()?;
        let invitation = PeerInvitation { addresses: self.addresses(from, to), ticket };
        let connect =
            to_worker::ConnectHeapMember { request: Id::NONE, heap, member: U32::new(to_index) };
        no_refusal(from, from.request(connect, &frame::encode(&invitation)).wait()?)
    }

    /// Has the worker of `from` open a link to the worker of `to`.
    fn connect(&self, from: &Arc<Session>, to: &Arc<Session>) -> bool {
        let Some(ticket) = random_ticket() else { return false };
        let admit = to_worker::AdmitPeer { request: Id::NONE, peer: peer_id(from) };
        if to.request(admit, &ticket).wait().is_err() {
            return false;
        }
        let invitation = PeerInvitation { addresses: self.addresses(from, to), ticket };
        let connect = to_worker::ConnectPeer { request: Id::NONE, peer: peer_id(to) };
        from.request(connect, &frame::encode(&invitation)).wait().is_ok()
    }

    /// Returns the addresses of `to` that `from` may reach. Local addresses are only for the same
    /// host, and come first.
    fn addresses(&self, from: &Session, to: &Session) -> Vec<String> {
        let (Some(here), Some(there)) = (self.reach.get(from.node()), self.reach.get(to.node()))
        else {
            return Vec::new();
        };
        let (local, other): (Vec<_>, Vec<_>) =
            there.addresses.iter().cloned().partition(|it| is_local(it));
        let local = if here.boot == there.boot { local } else { Vec::new() };
        local.into_iter().chain(other).collect()
    }
}

/// Returns whether an address of a daemon is valid only on the daemon's host. An address that only
/// the two workers understand counts as one of a network.
pub(crate) fn is_local(address: &str) -> bool {
    address.parse::<Address>().is_ok_and(|address| address.is_local())
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// Returns the name of a session's worker at all other workers.
pub(crate) fn peer_id(of: &Session) -> Id<kind::Peer> {
    Id::new(of.node() as u64 + 1)
}

pub(crate) fn random_ticket() -> Option<[u8; TICKET_BYTES]> {
    let mut ticket = [0; TICKET_BYTES];
    #[cfg(feature = "world")]
    if penstock_process::world::is_member() {
        return Some(
            [(); TICKET_BYTES].map(|()| penstock_process::world::draw(256).to_le_bytes()[0]),
        );
    }
    let count = rustix::rand::getrandom(&mut ticket, rustix::rand::GetRandomFlags::empty()).ok()?;
    (count == TICKET_BYTES).then_some(ticket)
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("nodes", &self.reach.len()).finish_non_exhaustive()
    }
}
