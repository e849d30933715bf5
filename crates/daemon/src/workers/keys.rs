//! Sessions by the public keys of their clients.

use penstock_link::PublicKey;

use super::{State, Workers};

impl Workers {
    /// Returns the public keys of the clients that are served.
    pub(crate) fn client_keys(&self) -> Vec<PublicKey> {
        let mut keys: Vec<PublicKey> =
            self.sessions().into_iter().filter_map(|session| session.key).collect();
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
}
