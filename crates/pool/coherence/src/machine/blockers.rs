//! The reasons that hold a command back.

use super::{Kept, Machine, Until, in_doubt};
use crate::command::{Submit, Use};
use crate::names::CommandId;
use crate::rules::Rule;

/// Number of transfers that may be on their way to one copy. A command that uses the copy waits for
/// all of them, each with an entry in its wait list. Programs that move a buffer to and fro gain
/// nothing from more.
const ARRIVALS_MAX: usize = 16;

impl Machine {
    /// Returns the commands and events that hold a command back because of its wait list or its
    /// queue.
    pub(super) fn blockers(&self, command: &Submit<'_>) -> Vec<(CommandId, Until)> {
        let mut blockers = Vec::new();
        if self.nodes.is_empty() {
            return blockers;
        }
        for id in command.waits {
            if !self.has_passed(*id) && self.rules.hold(Rule::UnsetEventHolds) {
                blockers.push((*id, Until::Passed(true)));
            }
        }
        self.add_queue_blockers(command, &mut blockers);
        blockers
    }

    /// Returns what an otherwise free command waits for: commands that other threads are sending,
    /// and commands that have still to write the program's memory that it uses. Only sent commands
    /// count. A command that is held back may come after this one even if its call came first,
    /// because the program may set the event that holds it back only when this one has ended.
    pub(super) fn hazards(&self, kept: &Kept) -> Vec<(CommandId, Until)> {
        let mut hazards = self.senders(&kept.uses);
        let arrivals_max = self.arrivals_max.unwrap_or(ARRIVALS_MAX);
        for it in &kept.uses {
            let allocation = self.allocations.get(&it.allocation);
            let is_live = |id: CommandId| self.nodes.contains_key(&id);
            if let Some(allocation) = allocation {
                let crowd = allocation.crowd(it, arrivals_max, &is_live, self.rules);
                hazards.extend(crowd.map(|id| (id, Until::Ended)));
                let it = in_doubt(it, kept.is_in_doubt);
                let state = (self.rules, &self.lost);
                let users = allocation.before_initial(&it, kept.place, &is_live, state);
                hazards.extend(users.into_iter().map(|id| (id, Until::Ended)));
                let deciding = allocation.before_undone(&it, kept.place, &is_live, state);
                hazards.extend(deciding.into_iter().map(|id| (id, Until::Ended)));
            }
        }
        // One check is enough: commands that were sent since then are not ordered before this one.
        if !kept.is_host_checked {
            for (shape, rule) in [
                (&kept.reads_host, Rule::HostReadAfterWrite),
                (&kept.writes_host, Rule::HostWriteAfterWrite),
            ] {
                if let Some(shape) = shape.as_ref().filter(|_| self.rules.hold(rule)) {
                    hazards.extend(self.host.overlapping(shape).map(|id| (id, Until::Ended)));
                }
            }
        }
        hazards
    }

    fn add_queue_blockers(&self, command: &Submit<'_>, blockers: &mut Vec<(CommandId, Until)>) {
        let Some(queue) = self.queues.get(&command.queue) else { return };
        let rule = if command.in_order { Rule::BehindHeldInOrder } else { Rule::BehindHeldBarrier };
        if let Some(tail) =
            queue.tail.filter(|tail| !self.has_passed(*tail) && self.rules.hold(rule))
        {
            blockers.push((tail, Until::Passed(false)));
        }
        let waits_for_all = command.sync.is_some_and(|sync| !sync.is_listed);
        if !command.in_order && waits_for_all && self.rules.hold(Rule::SyncWaitsForHeld) {
            let open = queue.open.iter().filter(|id| !self.has_passed(**id));
            blockers.extend(open.map(|id| (*id, Until::Passed(false))));
        }
    }

    /// Returns commands of other threads that use the same allocations and are being sent. Their
    /// workers must know their names before other commands can wait for them.
    fn senders(&self, uses: &[Use]) -> Vec<(CommandId, Until)> {
        if !self.rules.hold(Rule::OneSenderPerAllocation) {
            return Vec::new();
        }
        let allocations = uses.iter().filter_map(|it| self.allocations.get(&it.allocation));
        allocations.flat_map(|it| it.sending.iter().map(|id| (*id, Until::Passed(false)))).collect()
    }
}

/// Returns the blockers that must have ended, not only been sent.
pub(super) fn ended_of(blockers: &[(CommandId, Until)]) -> Vec<CommandId> {
    let ended = blockers.iter().filter(|(_, until)| matches!(until, Until::Ended));
    ended.map(|(id, _)| *id).collect()
}
