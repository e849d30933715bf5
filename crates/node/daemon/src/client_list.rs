//! The sessions of clients whose keys were revoked, and the links to nodes whose keys were revoked.
//!
//! The daemon looks at the list of clients once a second, and only while it serves a client of an
//! encrypted link, or one of its workers has an encrypted link to another node. The list may be on
//! a network's file system, where the system reports no changes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use penstock_link::{Keys, PublicKey};

use crate::daemon::Daemon;

/// Longest time that a session or a link goes on after the key was revoked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The list of clients, as it was at the last look.
pub(crate) struct ClientList {
    /// `None` if this daemon has no encrypted links.
    path: Option<PathBuf>,
    seen: Option<Version>,
    /// `None` while there are no encrypted links.
    look_at: Option<Instant>,
}

/// Changes with every change of a file.
#[derive(PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl ClientList {
    pub(crate) fn new(keys: &Keys) -> Self {
        let path = keys.encryption.as_ref().and_then(|it| it.clients_file().ok());
        Self { path, seen: None, look_at: None }
    }

    /// Returns when the daemon must look again even if nothing happens.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.look_at
    }

    /// Returns whether the list may have changed since the last call that returned true.
    fn has_changed(&mut self) -> bool {
        let Some(path) = &self.path else { return false };
        let now = fs::metadata(path).ok().map(|about| Version {
            inode: about.ino(),
            bytes: about.len(),
            changed: (about.ctime(), about.ctime_nsec()),
        });
        let has_changed = now != self.seen;
        self.seen = now;
        has_changed
    }
}

impl Daemon {
    /// Notes that a worker gets an encrypted link to another node, so that [`Daemon::end_revoked`]
    /// sees it. Returns `false` if the worker may have no more links. A caller that has handed over
    /// the link calls [`Daemon::end_if_revoked`].
    pub(crate) fn note_node(&self, worker: u32, node: Option<PublicKey>) -> bool {
        let Some(node) = node else { return true };
        let has_room = self.workers().note_node(worker, node);
        self.wake();
        has_room
    }

    /// Ends the links to a node if its key was revoked before [`Daemon::note_node`], or while the
    /// link was handed over.
    pub(crate) fn end_if_revoked(&self, node: Option<PublicKey>) {
        if let (Some(encryption), Some(node)) = (&self.keys.encryption, node)
            // Without a list, nobody can say that the link may stay.
            && !matches!(encryption.is_revoked(&node), Ok(false))
        {
            self.workers().end_links(&node);
        }
    }

    /// Ends the sessions of revoked clients and the links to revoked nodes, if it is time to look.
    pub(crate) fn end_revoked(&self, list: &mut ClientList) {
        let keys = self.workers().known_keys();
        let Some(encryption) = self.keys.encryption.as_ref().filter(|_| !keys.is_empty()) else {
            // The next session may begin with a list that has changed meanwhile.
            (list.look_at, list.seen) = (None, None);
            return;
        };
        let now = Instant::now();
        if list.look_at.is_some_and(|at| now < at) {
            return;
        }
        list.look_at = Some(now + LOOK_EVERY);
        if !list.has_changed() {
            return;
        }
        for key in keys {
            match encryption.is_revoked(&key) {
                Ok(false) => {}
                Ok(true) => {
                    let mut workers = self.workers();
                    let (sessions, linked) = (workers.end_client(&key), workers.end_links(&key));
                    drop(workers);
                    tracing::info!(%key, sessions, linked, "a public key was revoked");
                }
                // Half a list protects nobody, so all goes on until it can be read. New clients and
                // links are refused meanwhile.
                Err(error) => {
                    tracing::warn!(%error, "the list of clients cannot be read");
                    list.seen = None;
                    return;
                }
            }
        }
    }
}
