//! The copy of a segment at one place, and its users.

use super::Around;
use crate::names::{CommandId, QueueId};
use crate::rules::{Rule, Rules};

#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) version: u64,
    /// Transfers that bring the content and have not ended.
    pub(super) arrivals: Vec<CommandId>,
    /// Transfers that may still store content which a later command was to overwrite. That command
    /// may have failed without waiting for them.
    pub(super) replaced: Vec<CommandId>,
    /// Commands that use the copy.
    pub(super) writers: Users,
    pub(super) readers: Users,
    /// Transfers that leave with the copy's content. A write does not wait for them. A command that
    /// needs the content they carry, which the write replaces, happens before the write and has
    /// waited for the arrival. No other command gets that content, because its version is old from
    /// the write on.
    pub(super) departures: Users,
}

/// Commands that use a copy. In an in-order queue the last one stands for all before it, unless it
/// may fail before its turn; then it is stored without its queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Users(pub(super) Vec<(Option<QueueId>, CommandId)>);

impl Users {
    pub(super) fn add(&mut self, queue: Option<QueueId>, id: CommandId, around: &Around<'_>) {
        self.0.retain(|(_, id)| (around.is_live)(*id));
        self.0.push((queue, id));
    }

    /// Notes that the command was sent. From now on it stands for all before it in an in-order
    /// queue. A command that could not be sent does not, because its end says nothing about theirs.
    /// A command that waits for a single other one stands for that one.
    pub(super) fn stand_for_all(
        &mut self,
        id: CommandId,
        only_wait: Option<CommandId>,
        rules: Rules,
    ) {
        let Some((queue, _)) = self.0.iter().find(|(_, user)| *user == id).copied() else { return };
        self.0.retain(|(_, user)| Some(*user) != only_wait);
        let Some(queue) = queue else { return };
        let per_queue = rules.hold(Rule::OneUserPerQueue);
        self.0.retain(|(of, user)| *user == id || (per_queue && *of != Some(queue)));
    }

    pub(super) fn open<'a>(
        &'a self,
        is_live: &'a dyn Fn(CommandId) -> bool,
    ) -> impl Iterator<Item = CommandId> + 'a {
        self.0.iter().map(|(_, id)| *id).filter(|id| is_live(*id))
    }

    fn join(&mut self, other: Self) {
        for user in other.0 {
            if !self.0.contains(&user) {
                self.0.push(user);
            }
        }
    }
}

impl Copy {
    pub(super) fn new(version: u64) -> Self {
        Self {
            version,
            arrivals: Vec::new(),
            replaced: Vec::new(),
            writers: Users::default(),
            readers: Users::default(),
            departures: Users::default(),
        }
    }

    /// Returns all commands and transfers that a transfer to this copy must wait for.
    pub(super) fn users(&self, is_live: &dyn Fn(CommandId) -> bool) -> Vec<CommandId> {
        let transfers = self.arrivals.iter().chain(&self.replaced).copied();
        let mut users: Vec<_> = transfers.filter(|id| is_live(*id)).collect();
        users.extend(self.writers.open(is_live));
        users.extend(self.readers.open(is_live));
        users.extend(self.departures.open(is_live));
        users
    }

    pub(super) fn join(&mut self, other: Self) {
        for (to, from) in
            [(&mut self.arrivals, other.arrivals), (&mut self.replaced, other.replaced)]
        {
            for id in from {
                if !to.contains(&id) {
                    to.push(id);
                }
            }
        }
        self.writers.join(other.writers);
        self.readers.join(other.readers);
        self.departures.join(other.departures);
    }
}
