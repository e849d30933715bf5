//! The predecessors of a step, and the critical path of a run.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::{Recorder, Step};
use crate::command::CommandId;

/// Number of inner tree nodes that are followed to find when a transfer began. It exceeds the
/// number of levels of a tree over all possible ranks. In a longer chain a transfer appears to
/// begin earlier than it did.
const DEPTH_MAX: u32 = 32;

impl Recorder {
    /// Returns the predecessors of a job: the jobs that it waited for, and those that sent bytes to
    /// it. A job does not carry waits for commands that had ended when it was planned; those are
    /// taken from the program's command.
    pub fn predecessors(&self, job: &Step) -> Vec<CommandId> {
        let mut before: Vec<CommandId> = job.waits.iter().chain(&job.senders).copied().collect();
        let is_fed = job
            .senders
            .iter()
            .filter_map(|sender| self.jobs.get(sender))
            .any(|sender| !sender.waits.is_empty());
        let own = std::iter::once(&job.id).chain(&job.also).filter_map(|id| self.commands.get(id));
        for command in own.filter(|command| command.rank == job.rank || !is_fed) {
            before.extend(command.waits.iter().map(|wait| self.done_by(*wait)));
        }
        before.retain(|id| *id != job.id && self.jobs.contains_key(id));
        before.sort_unstable();
        before.dedup();
        before
    }

    /// Returns [`Self::predecessors`] and the predecessors of the receivers of its bytes: the job
    /// could not send before they were ready.
    pub fn predecessors_of_begin(&self, job: &Step) -> Vec<CommandId> {
        let mut before = self.predecessors(job);
        for receiver in job.receivers.iter().filter_map(|receiver| self.jobs.get(receiver)) {
            before.extend(
                self.predecessors(receiver).into_iter().filter(|id| !receiver.senders.contains(id)),
            );
        }
        before.retain(|id| *id != job.id);
        before
    }

    /// Returns when a command or job began. Each end of a transfer between ranks starts when its
    /// own waits have ended. The transfer begins when both ends have started, and an inner node of
    /// a tree when it gets bytes.
    pub fn began(&self, step: &Step) -> u64 {
        let job = self.jobs.get(&self.done_by(step.id)).unwrap_or(step);
        self.both_began(job, DEPTH_MAX).min(job.times.ended)
    }

    fn both_began(&self, job: &Step, depth: u32) -> u64 {
        let receivers = job.receivers.iter().filter_map(|receiver| self.jobs.get(receiver));
        let first =
            receivers.map(|receiver| receiver.times.started).filter(|started| *started > 0).min();
        let began = job.times.started.max(first.unwrap_or_default());
        let senders = job.senders.iter().filter_map(|sender| self.jobs.get(sender));
        match depth.checked_sub(1) {
            Some(depth) => senders
                .map(|sender| self.both_began(sender, depth))
                .max()
                .unwrap_or_default()
                .max(began),
            None => began,
        }
    }

    /// Returns how long a command or job took, in ns.
    pub fn duration(&self, step: &Step) -> u64 {
        step.times.ended.saturating_sub(self.began(step))
    }

    /// Returns the job that does a command.
    fn done_by(&self, command: CommandId) -> CommandId {
        self.commands.get(&command).and_then(|step| step.done_by).unwrap_or(command)
    }
}

/// Returns the critical path. It goes from the step that ended last (or the deepest one that has
/// not ended) to the one of its predecessors that ended last, and so on.
pub fn critical(
    steps: &BTreeMap<CommandId, Step>,
    before: impl Fn(&Step) -> Vec<CommandId>,
) -> FxHashSet<CommandId> {
    let key = |step: &Step| (step.times.ended == 0, step.times.ended, step.level, step.id);
    let mut path = FxHashSet::default();
    let mut at = steps.values().max_by_key(|step| key(step));
    while let Some(step) = at {
        // A cycle would be a defect, but the output must not hang.
        if !path.insert(step.id) {
            break;
        }
        at = before(step).into_iter().filter_map(|id| steps.get(&id)).max_by_key(|step| key(step));
    }
    path
}

/// Merges spans of time that overlap.
pub fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
    for (start, end) in spans {
        match apart.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => apart.push((start, end)),
        }
    }
    apart
}

/// Returns how much of a span these cover. They must be in order and must not overlap.
pub fn covered(apart: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = apart.partition_point(|(_, last)| *last <= start);
    let rest = apart.get(first..).unwrap_or_default();
    rest.iter()
        .take_while(|(begin, _)| *begin < end)
        .map(|(begin, last)| last.min(&end) - begin.max(&start))
        .sum()
}
