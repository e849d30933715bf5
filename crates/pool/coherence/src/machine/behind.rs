//! Ends that are told only after earlier commands have written the program's memory.

use rustc_hash::FxHashSet;

use super::{Kept, Machine};
use crate::command::Plan;
use crate::names::{CommandId, QueueId};
use crate::rules::Rule;

/// Number of entries of [`Machine::behind`] below which none is removed: some 100 KB.
const BEHIND_MIN: usize = 1024;

impl Machine {
    /// Returns the commands that happen before this one and have still to write the program's
    /// memory.
    pub(super) fn behind(&self, kept: &Kept) -> Vec<CommandId> {
        if self.host.is_empty() || !self.rules.hold(Rule::EndAfterHostWrites) {
            return Vec::new();
        }
        let mut behind = Vec::new();
        for id in &kept.waits {
            behind.extend_from_slice(self.behind.get(id).map(Vec::as_slice).unwrap_or_default());
            behind.push(*id);
        }
        if let Some((all, barrier)) = self.queues_behind.get(&kept.queue) {
            let waits_for_all = kept.sync.is_some_and(|sync| !sync.is_listed);
            behind.extend_from_slice(if kept.in_order || waits_for_all { all } else { barrier });
        }
        self.retain_writers(&mut behind);
        behind
    }

    /// Removes commands of the same in-order queue from `plan.behind`: their ends are told in
    /// order.
    pub(super) fn leave_out_line(&self, kept: &Kept, plan: &mut Plan) {
        plan.is_behind_writers = !plan.behind.is_empty();
        if kept.in_order {
            let line = |id: &CommandId| self.nodes.get(id).and_then(|node| node.line);
            plan.behind.retain(|id| line(id) != Some(kept.queue));
        }
    }

    /// Keeps the commands that have still to write the program's memory, and of an in-order queue
    /// only the last, whose end is told last. In such a queue later commands have greater names. A
    /// command that may fail with something that it waits for does not stand for earlier ones,
    /// because it may end first.
    fn retain_writers(&self, ids: &mut Vec<CommandId>) {
        ids.retain(|id| self.nodes.get(id).is_some_and(|node| node.writes_host.is_some()));
        ids.sort_unstable();
        ids.dedup();
        let mut lines = FxHashSet::default();
        ids.reverse();
        ids.retain(|id| {
            let Some((node, line)) = self.nodes.get(id).and_then(|node| Some((node, node.line?)))
            else {
                return true;
            };
            let is_last = !lines.contains(&line);
            if !node.is_in_doubt {
                lines.insert(line);
            }
            is_last
        });
        ids.reverse();
    }

    /// Notes what the command comes after. If a later command comes after this one, it also comes
    /// after the commands in `behind`.
    pub(super) fn note_behind(&mut self, id: CommandId, kept: &Kept, behind: &[CommandId]) {
        if self.host.is_empty() && behind.is_empty() {
            self.behind.clear();
            self.queues_behind.clear();
            return;
        }
        let is_writer = self.nodes.get(&id).is_some_and(|node| node.writes_host.is_some());
        // The common case: a command writes the program's memory, but has nothing to do with this
        // queue.
        if behind.is_empty() && !is_writer && !self.queues_behind.contains_key(&kept.queue) {
            return;
        }
        let (mut all, mut barrier) = self.queues_behind.remove(&kept.queue).unwrap_or_default();
        all.extend_from_slice(behind);
        all.push(id);
        self.retain_writers(&mut all);
        if kept.sync.is_some_and(|sync| sync.is_barrier) {
            barrier.clone_from(&behind.to_vec());
        }
        self.retain_writers(&mut barrier);
        if !all.is_empty() || !barrier.is_empty() {
            self.queues_behind.insert(kept.queue, (all, barrier));
        }
        if !behind.is_empty() {
            self.behind.insert(id, behind.to_vec());
            self.prune_behind();
        }
    }

    /// Forgets entries whose writers have all ended. It does not wait until no write is open,
    /// because a program may always have a read in progress. A check for each command would cost
    /// more than it gains.
    fn prune_behind(&mut self) {
        if self.behind.len() < self.prune_at {
            return;
        }
        let Self { behind, nodes, .. } = self;
        let is_open = |id: &CommandId| nodes.get(id).is_some_and(|node| node.writes_host.is_some());
        behind.retain(|_, writers| writers.iter().any(is_open));
        self.prune_at = BEHIND_MIN.max(2 * self.behind.len());
    }

    /// Returns the commands of a queue, and those before them, that have still to write the
    /// program's memory. A thread that has waited for the whole queue waits for these too.
    pub fn behind_queue(&self, queue: QueueId) -> Vec<CommandId> {
        let mut all =
            self.queues_behind.get(&queue).map(|(all, _)| all.clone()).unwrap_or_default();
        self.retain_writers(&mut all);
        all
    }
}
