//! Sessions whose clients have left, as the daemon sees it.
//!
//! A worker notices itself that its client has left, and ends. But the code of clients runs in the
//! same process: it can stop this process, or put something else in the place of the connection. So
//! the daemon keeps a descriptor of each connection, too, and ends a worker that stays.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::end_group;
use super::{Worker, Workers};
use crate::groups::Group;
use crate::message::ToWorker;

/// Time that a worker has to end after its client has left, or after it was told that its session
/// is over a limit or that an administrator ends it. It needs 300 ms (`END_MAX`), or longer on a
/// busy host.
const LEFT_MAX: Duration = Duration::from_secs(5);

/// The client of a worker.
#[derive(Debug, Default)]
pub(super) enum Presence {
    /// It has none yet.
    #[default]
    None,
    /// This is the connection.
    Here(Arc<OwnedFd>),
    /// It has left at this time, and the worker has not ended since.
    Left(Instant),
}

impl Worker {
    /// Returns the connection of its client, as long as the client has not left.
    pub(super) fn connection(&self) -> Option<Arc<OwnedFd>> {
        match &self.client {
            Presence::Here(connection) => Some(connection.clone()),
            _ => None,
        }
    }

    /// Returns when it must have ended, because its client has left or its session is over a limit.
    pub(super) fn must_end(&self) -> Option<Instant> {
        let left = match self.client {
            Presence::Left(since) => Some(since),
            _ => None,
        };
        left.into_iter().chain(self.over_since).min().map(|since| since + LEFT_MAX)
    }
}

impl Workers {
    /// From now on, the daemon looks at this connection of a worker's client.
    pub(crate) fn watch_client(&mut self, id: u32, connection: OwnedFd) {
        if let Some(worker) = self.table.get_mut(&id) {
            worker.client = Presence::Here(Arc::new(connection));
        }
    }

    /// Notes that the client of a worker has left.
    pub(crate) fn note_left(&mut self, id: u32, now: Instant) {
        if let Some(worker) = self.table.get_mut(&id)
            && matches!(worker.client, Presence::Here(_))
        {
            worker.client = Presence::Left(now);
        }
    }

    /// Has a worker end its session and tell its client why. Returns `false` if no worker with this
    /// process id has got a client. One that is about to get its client could not tell it.
    pub(crate) fn end_session(&mut self, id: u32, why: &str, now: Instant) -> bool {
        let has_client = |it: &&mut Worker| !matches!(it.client, Presence::None);
        let Some(worker) = self.table.get_mut(&id).filter(has_client) else { return false };
        worker.over_since.get_or_insert(now);
        // One that does not listen is killed in time.
        _ = worker.control.send(&ToWorker::Over(why.to_owned()), None);
        true
    }

    /// Kills the workers that have not ended in time after their clients have left, or at a limit,
    /// and returns them.
    pub(crate) fn end_left(&mut self, now: Instant) -> Vec<u32> {
        let late = |worker: &Worker| worker.must_end().is_some_and(|at| now >= at);
        let late = self.table.iter_mut().filter(|(_, worker)| late(worker));
        let end = |(id, worker): (&u32, &mut Worker)| {
            end_group(&worker.child);
            worker.group.iter().for_each(Group::end);
            worker.client = Presence::Left(now);
            worker.over_since = None;
            *id
        };
        late.map(end).collect()
    }
}
