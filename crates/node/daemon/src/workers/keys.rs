//! Sessions by the public keys of their clients, and links by those of the other nodes.

use penstock_link::{Machine, PublicKey, Stream};

use super::{State, Workers};
use crate::asks::Asks;
use crate::message::ToWorker;

/// Most keys of nodes that are kept for one worker. A session has at most 1,024 peers, and each may
/// be on a node of its own. Bounds the daemon's memory.
const NODES_PER_WORKER_MAX: usize = 1024;

impl Workers {
    /// Returns the public keys of the clients that are served, and of the nodes to which workers
    /// have been linked.
    pub(crate) fn known_keys(&self) -> Vec<PublicKey> {
        let clients = self.table.values().filter_map(|worker| match &worker.state {
            State::Serving(session) => session.key,
            _ => None,
        });
        let nodes = self.table.values().flat_map(|worker| &worker.nodes).copied();
        let mut keys: Vec<PublicKey> = clients.chain(nodes).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Kills the workers of the clients with this key. Returns how many.
    pub(crate) fn end_client(&mut self, key: &PublicKey) -> usize {
        let mut count = 0;
        for worker in self.table.values_mut() {
            if matches!(&worker.state, State::Serving(session) if session.key == Some(*key)) {
                worker.ended = Some("the client's key was revoked".to_owned());
                // If it has ended meanwhile, it is reaped as well.
                _ = worker.child.kill();
                count += 1;
            }
        }
        count
    }

    /// Notes that a worker gets a link to the node with this key. Returns `false` if it has had
    /// links to too many nodes.
    pub(crate) fn note_node(&mut self, id: u32, key: PublicKey) -> bool {
        let Some(worker) = self.table.get_mut(&id) else { return true };
        let has_room = worker.nodes.len() < NODES_PER_WORKER_MAX || worker.nodes.contains(&key);
        if has_room {
            worker.nodes.insert(key);
        }
        has_room
    }

    /// Returns what a worker may have asked, if it lives.
    pub(crate) fn asks_of(&mut self, id: u32) -> Option<&mut Asks> {
        self.table.get_mut(&id).map(|worker| &mut worker.asks)
    }

    /// Notes that a worker gets this link.
    pub(crate) fn learn_machine(&mut self, worker: u32, stream: &Stream) {
        if let Some(asks) = self.asks_of(worker) {
            asks.learn(Machine::of(&stream.source()));
        }
    }

    /// Has all workers end their links to the node with this key. Returns the number of workers
    /// that had any.
    pub(crate) fn end_links(&mut self, key: &PublicKey) -> usize {
        let mut count = 0;
        for worker in self.table.values_mut().filter(|worker| worker.nodes.contains(key)) {
            worker.nodes.remove(key);
            if worker.control.send(&ToWorker::EndLinks(*key.as_bytes()), None).is_err() {
                // It does not listen, so its links end with it.
                _ = worker.child.kill();
            }
            count += 1;
        }
        count
    }
}
