//! Workers that are ending: their processes, and why they ended.

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_link::Part;

use super::group::{describe, end_group_of_ended};
use super::{State, Worker, Workers};
use crate::folders::Folder;
use crate::groups::Group;

/// Time that a worker has to end after it has closed its control socket; then it is killed.
const DYING_MAX: Duration = Duration::from_millis(200);

/// Interval at which dying workers are checked.
pub(super) const DYING_LOOK: Duration = Duration::from_millis(5);

/// A worker whose control socket has closed, until its process has ended.
pub(super) struct Dying {
    pub(super) worker: u32,
    /// Whether the daemon has ended it, because it was a surplus spare.
    pub(super) retired: bool,
    pub(super) child: Child,
    pub(super) client: Option<String>,
    pub(super) told: Option<String>,
    pub(super) since: Instant,
    pub(super) killed: bool,
    /// Kept until the process has ended, because it has the part mapped.
    pub(super) _part: Option<Arc<Part>>,
    /// Dropped before the folder, so that what the worker has started ends first.
    pub(super) group: Option<Group>,
    /// Kept, too: a cache that its user keeps must not change any more.
    pub(super) _folder: Option<Folder>,
}

impl Dying {
    pub(super) fn of(worker: u32, child: Child, since: Instant) -> Self {
        let (client, told, _part, group, _folder) = (None, None, None, None, None);
        let (retired, killed) = (false, false);
        Self { worker, retired, child, client, told, since, killed, _part, group, _folder }
    }
}

/// How a worker ended.
pub(crate) struct Ended {
    pub(crate) worker: u32,
    /// Its client, if it had one.
    pub(crate) client: Option<String>,
    /// The reason that the worker gave in its last message, if it sent one.
    pub(crate) told: Option<String>,
    pub(crate) status: String,
    /// Whether it reported its end.
    pub(crate) orderly: bool,
}

impl Workers {
    /// Returns whether the processes of this group are a worker and what it has started.
    pub(crate) fn has_group(&self, group: u32) -> bool {
        let is_dying = |dying: &Dying| dying.child.id() == group;
        self.table.contains_key(&group) || self.dying.iter().any(is_dying)
    }

    /// Notes that a worker has ended, or has closed its control socket and is about to end.
    pub(crate) fn closed(&mut self, id: u32, now: Instant) {
        let Some(mut worker) = self.table.remove(&id) else { return };
        if let State::Serving(session) = &mut worker.state {
            // The process is not reaped yet, so the kernel still knows its core time.
            let cost = session.cost(self.devices.len());
            self.totals.look(&mut session.counted, &cost);
            self.totals.end(&session.counted, worker.ended.is_some());
        }
        self.spares.retain(|spare| *spare != id);
        self.tickets.retain(|_, owner| *owner != id);
        self.quota.leave(id);
        let Worker { child, state, ended: told, part, folder, group, .. } = worker;
        let client = match state {
            State::Serving(session) => Some(session.client),
            State::Spare | State::Starting(_) => {
                self.note_failure("a worker ended before it had a client".to_owned(), now);
                None
            }
        };
        let kept = Dying { group, _part: part, _folder: folder, ..Dying::of(id, child, now) };
        self.dying.push(Dying { client, told, ..kept });
        self.limit_groups();
    }

    /// Returns the workers that have ended since the last look. A worker that only closed its
    /// socket is killed after [`DYING_MAX`], and nobody waits for it.
    pub(crate) fn reap(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        let (mut at, failing) = (0, self.refill.is_failing());
        while let Some(dying) = self.dying.get_mut(at) {
            end_group_of_ended(&dying.child);
            let mut status = match dying.child.try_wait() {
                Ok(Some(status)) => describe(status),
                Ok(None) => {
                    if !dying.killed && now >= dying.since + DYING_MAX {
                        // If it has ended meanwhile, the next look reaps it.
                        _ = dying.child.kill();
                        dying.killed = true;
                    }
                    at += 1;
                    continue;
                }
                Err(_) => "unknown".to_owned(),
            };
            let Dying { worker, retired, client, told, group, .. } = self.dying.swap_remove(at);
            if let Some(limit) = group.as_ref().and_then(Group::memory_exceeded) {
                let limit = penstock_quota::Unit::Bytes.show(limit);
                status.push_str(&format!("; it reached worker_memory, {limit}"));
            }
            if retired {
                continue;
            }
            if client.is_none() && failing {
                self.problem = Some(format!("a worker ended before it had a client: {status}"));
            }
            ended.push(Ended { worker, client, orderly: told.is_some(), told, status });
        }
        ended
    }
}
