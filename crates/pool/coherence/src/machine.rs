//! The machine: which commands may be sent, and which must wait for what.

mod behind;
mod blockers;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::command::{Access, Action, InPlace, Plan, Source, Submit, Sync, Use, Verdict};
use crate::host::{HostShape, HostWrites};
use crate::names::{AllocationId, CommandId, ContextId, NodeId, Place, QueueId};
use crate::regions::{Allocation, Around};
use crate::rules::{Rule, Rules};

/// The state of all commands and events that a later command may have to wait for.
#[derive(Debug, Default)]
pub struct Machine {
    nodes: FxHashMap<CommandId, Node>,
    queues: FxHashMap<QueueId, Held>,
    allocations: FxHashMap<AllocationId, Allocation>,
    host: HostWrites,
    /// Writers of the program's memory that happen before a command that was sent meanwhile.
    behind: FxHashMap<CommandId, Vec<CommandId>>,
    /// The same for all commands of a queue and, out of order, for its last barrier.
    queues_behind: FxHashMap<QueueId, (Vec<CommandId>, Vec<CommandId>)>,
    /// Blocking writes that have returned but not ended.
    settled: FxHashMap<ContextId, Vec<(QueueId, CommandId)>>,
    lost: FxHashSet<NodeId>,
    /// Held commands that nothing holds back any more.
    ready: VecDeque<CommandId>,
    stamp: u64,
    /// Number of entries of `behind` at which those without open writers are removed.
    prune_at: usize,
    rules: Rules,
    /// Limit that replaces [`blockers::ARRIVALS_MAX`], if it is given.
    arrivals_max: Option<usize>,
}

/// Number of names in [`Held::open`] below which those that are held no more are not removed.
const HELD_MIN: usize = 16;

/// A command or client event that other commands may have to wait for.
#[derive(Debug)]
struct Node {
    stage: Stage,
    /// Number of events that hold the command back.
    blockers: usize,
    /// Whether an event of its wait list has failed.
    is_doomed: bool,
    /// Held commands that continue when this command is sent or this client event is set, each with
    /// whether its wait list names this one.
    until_passed: Vec<(CommandId, bool)>,
    /// Held commands that continue when this one has ended.
    until_ended: Vec<CommandId>,
    /// The command, while it is held.
    held: Option<Box<Kept>>,
    writes_host: Option<HostShape>,
    /// The command's queue, if that is in order.
    line: Option<QueueId>,
    /// Whether the command may fail before its turn, together with something that it waits for.
    is_in_doubt: bool,
    /// The command that this one waits for at its worker, if there is only one.
    only_wait: Option<CommandId>,
    /// The program's memory that a formerly held command reads, while it is being sent.
    reads_host: Option<HostShape>,
    allocations: Vec<AllocationId>,
    settles: Option<ContextId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A client event that is not set.
    Gate,
    Held,
    /// A thread is sending the command now.
    Sending,
    Sent,
}

/// The commands that a queue holds back.
#[derive(Debug, Default)]
struct Held {
    /// In order, the command that the next one follows. Out of order, the last held barrier.
    tail: Option<CommandId>,
    /// Out of order, all held commands and gates, and some names that are not held any more.
    open: Vec<CommandId>,
    /// Length of `open` at which names that are not held any more are removed.
    prune_at: usize,
}

/// A submitted command that the machine keeps.
#[derive(Debug)]
struct Kept {
    queue: QueueId,
    in_order: bool,
    context: ContextId,
    place: Place,
    /// Whether an event of its wait list may still fail, and the command with it.
    is_in_doubt: bool,
    uses: Vec<Use>,
    waits: Vec<CommandId>,
    sync: Option<Sync>,
    reads_host: Option<HostShape>,
    writes_host: Option<HostShape>,
    is_host_checked: bool,
    gate: Option<CommandId>,
}

#[derive(Clone, Copy)]
enum Until {
    /// Until the command was sent or the client event was set. `true` if the waiting command names
    /// it in its wait list.
    Passed(bool),
    Ended,
}

impl Node {
    fn new(stage: Stage) -> Self {
        Self {
            stage,
            blockers: 0,
            is_doomed: false,
            until_passed: Vec::new(),
            until_ended: Vec::new(),
            held: None,
            writes_host: None,
            line: None,
            is_in_doubt: false,
            only_wait: None,
            reads_host: None,
            allocations: Vec::new(),
            settles: None,
        }
    }
}

impl Machine {
    /// Makes a machine without one of its rules.
    #[cfg(feature = "planted")]
    pub fn without(rule: Rule) -> Self {
        Self { rules: Rules { off: Some(rule) }, ..Self::default() }
    }

    /// Sets another limit for the transfers on their way to one copy, so that small programs reach
    /// it.
    #[cfg(feature = "explore")]
    #[must_use]
    pub fn with_arrivals_max(self, arrivals_max: usize) -> Self {
        Self { arrivals_max: Some(arrivals_max), ..self }
    }

    /// Returns whether nothing is known that a command of a context with one place could wait for.
    /// Then [`Machine::submit`] answers [`Verdict::Send`] with an empty plan, unless the command
    /// writes the program's memory, uses memory that spans places, or has a gate.
    pub fn is_quiet(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of commands that are held back.
    pub fn held(&self) -> usize {
        self.nodes.values().filter(|node| node.stage == Stage::Held).count()
    }

    /// Registers an allocation of `size` bytes in a context whose places are on `nodes`. Transfers
    /// move all of it if `is_indivisible`. The program gave its content if `has_initial`.
    pub fn allocate(
        &mut self,
        id: AllocationId,
        size: u64,
        is_indivisible: bool,
        nodes: Vec<NodeId>,
        has_initial: bool,
    ) {
        self.allocations.insert(id, Allocation::new(size, is_indivisible, nodes, has_initial));
    }

    /// Forgets an allocation. No command that uses it is held back.
    pub fn release(&mut self, id: AllocationId) {
        self.allocations.remove(&id);
    }

    /// Forgets a queue. None of its commands is held back.
    pub fn release_queue(&mut self, id: QueueId) {
        self.queues.remove(&id);
        self.queues_behind.remove(&id);
    }

    /// Registers a client event. [`Machine::ended`] tells that the program or the client has set
    /// it.
    pub fn client_event(&mut self, id: CommandId) {
        self.nodes.insert(id, Node::new(Stage::Gate));
    }

    /// Notes that a node is lost, with all copies on it.
    pub fn lost(&mut self, node: NodeId) {
        self.lost.insert(node);
    }

    /// Decides about a command that the program enqueues. `next` makes names for transfers.
    pub fn submit(&mut self, command: &Submit<'_>, next: &mut dyn FnMut() -> CommandId) -> Verdict {
        if self.is_quiet()
            && command.uses.is_empty()
            && command.writes_host.is_none()
            && command.gate.is_none()
        {
            return Verdict::Send { plan: Plan::default(), is_tracked: false };
        }
        let blockers = self.blockers(command);
        if let Some(gate) = command.gate {
            self.client_event(gate);
        }
        let kept = Kept::new(command);
        let verdict = if blockers.is_empty() {
            self.send_at_once(command.id, kept, next)
        } else {
            self.hold(command.id, kept, &blockers)
        };
        let is_held = matches!(verdict, Verdict::Hold { .. });
        if verdict != Verdict::ContentLost {
            self.note_in_queue(command, is_held);
        }
        verdict
    }

    /// Returns whether a command was sent, or a client event was set.
    fn has_passed(&self, id: CommandId) -> bool {
        self.nodes.get(&id).is_none_or(|node| node.stage == Stage::Sent)
    }

    fn send_at_once(
        &mut self,
        id: CommandId,
        mut kept: Kept,
        next: &mut dyn FnMut() -> CommandId,
    ) -> Verdict {
        let hazards = self.hazards(&kept);
        if !hazards.is_empty() {
            kept.is_host_checked = true;
            return self.hold(id, kept, &hazards);
        }
        let Some(mut plan) = self.plan(id, &kept, next) else {
            if let Some(gate) = kept.gate {
                self.ended(gate, false);
            }
            return Verdict::ContentLost;
        };
        let is_tracked =
            !kept.uses.is_empty() || (kept.writes_host.is_some() && kept.gate.is_none());
        if is_tracked {
            self.nodes.insert(id, Node::new(Stage::Sending));
        }
        self.note_sending(id, &kept, &plan);
        self.leave_out_line(&kept, &mut plan);
        Verdict::Send { plan, is_tracked }
    }

    /// Returns whether a command that is held back or being sent reads bytes of this memory of the
    /// program.
    pub fn may_be_read(&self, shape: &HostShape) -> bool {
        let held = self.nodes.values().filter_map(|node| node.held.as_ref()?.reads_host.as_ref());
        let sending = self.nodes.values().filter_map(|node| node.reads_host.as_ref());
        { held }.chain(sending).any(|other| other.overlaps(shape))
    }

    /// Returns whether an open command writes bytes of this memory of the program.
    pub fn may_be_written(&self, shape: &HostShape) -> bool {
        let held = self.nodes.values().filter_map(|node| node.held.as_ref()?.writes_host.as_ref());
        self.host.overlapping(shape).next().is_some() || { held }.any(|other| other.overlaps(shape))
    }

    /// Notes that a command is being sent from now on.
    fn note_sending(&mut self, id: CommandId, kept: &Kept, plan: &Plan) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.stage = Stage::Sending;
            node.reads_host = kept.reads_host;
            node.is_in_doubt = kept.is_in_doubt || !plan.waits.is_empty();
            node.only_wait =
                kept.waits.first().filter(|_| kept.waits.len() + plan.waits.len() == 1).copied();
            node.allocations = kept.uses.iter().map(|it| it.allocation).collect();
        }
        // The client does its own work after the command has ended and before it sets the gate.
        let writer = kept.gate.unwrap_or(id);
        if let Some((node, shape)) = self.nodes.get_mut(&writer).zip(kept.writes_host) {
            node.writes_host = Some(shape);
            node.line = kept.in_order.then_some(kept.queue).filter(|_| kept.gate.is_none());
            self.host.insert(writer, shape);
        }
        self.note_behind(id, kept, &plan.behind);
    }

    fn hold(&mut self, id: CommandId, kept: Kept, blockers: &[(CommandId, Until)]) -> Verdict {
        let mut node = Node::new(Stage::Held);
        node.held = Some(Box::new(kept));
        self.nodes.insert(id, node);
        self.block(id, blockers);
        Verdict::Hold { until_ended: blockers::ended_of(blockers) }
    }

    fn block(&mut self, id: CommandId, blockers: &[(CommandId, Until)]) {
        for (blocker, until) in blockers {
            let Some(node) = self.nodes.get_mut(blocker) else { continue };
            match until {
                Until::Passed(is_listed) => node.until_passed.push((id, *is_listed)),
                Until::Ended => node.until_ended.push(id),
            }
            if let Some(node) = self.nodes.get_mut(&id) {
                node.blockers += 1;
            }
        }
    }

    /// Notes the command behind which later commands of the queue come.
    fn note_in_queue(&mut self, command: &Submit<'_>, is_held: bool) {
        let gate = command.gate.filter(|_| self.rules.hold(Rule::ClientRunHolds));
        let last = gate.or(is_held.then_some(command.id));
        let Some(last) = last else { return };
        if !command.in_order {
            let mut queue = self.queues.remove(&command.queue).unwrap_or_default();
            if queue.open.len() >= queue.prune_at {
                queue.open.retain(|id| !self.has_passed(*id));
                queue.prune_at = 2 * queue.open.len() + HELD_MIN;
            }
            queue.open.push(last);
            self.queues.insert(command.queue, queue);
            if command.sync.is_none_or(|sync| !sync.is_barrier) {
                return;
            }
        }
        self.queues.entry(command.queue).or_default().tail = Some(last);
    }

    /// Returns what holds back a command that would wait for everything in a queue. Each of these
    /// passes at some time, and later commands do not join them.
    pub fn held_in(&self, queue: QueueId) -> Vec<CommandId> {
        let Some(queue) = self.queues.get(&queue) else { return Vec::new() };
        let all = queue.tail.iter().chain(&queue.open).copied();
        all.filter(|id| !self.has_passed(*id)).collect()
    }

    /// Returns whether all of these, from [`Machine::held_in`], have passed.
    pub fn have_passed(&self, ids: &[CommandId]) -> bool {
        ids.iter().all(|id| self.has_passed(*id))
    }

    /// Makes the plan of a command that is sent now. Returns `None` if content that it needs is
    /// lost.
    fn plan(
        &mut self,
        id: CommandId,
        kept: &Kept,
        next: &mut dyn FnMut() -> CommandId,
    ) -> Option<Plan> {
        let mut plan = Plan::default();
        if kept.sync.is_none() && self.rules.hold(Rule::FollowBlockingWrites) {
            let own = kept.in_order.then_some(kept.queue);
            plan.ends.extend(self.unsettled(kept.context, own));
        }
        plan.behind = self.behind(kept);
        if kept.uses.is_empty() {
            return Some(plan);
        }
        let Self { nodes, allocations, lost, rules, stamp, .. } = self;
        let is_lost = |it: &Use| {
            let it = in_doubt(it, kept.is_in_doubt);
            allocations
                .get(&it.allocation)
                .is_some_and(|of| of.is_lost(&it, kept.place, *rules, lost))
        };
        if kept.uses.iter().any(is_lost) {
            return None;
        }
        // Greater than the versions of content that no command wrote.
        *stamp = (*stamp).max(1) + 1;
        let is_live = |id: CommandId| nodes.contains_key(&id);
        let mut around = Around { rules: *rules, is_live: &is_live, lost, next };
        for it in &kept.uses {
            if let Some(allocation) = allocations.get_mut(&it.allocation) {
                let it = in_doubt(it, kept.is_in_doubt && rules.hold(Rule::FetchUnderDoubt));
                allocation.acquire(&it, kept.place, (id, *stamp), &mut around, &mut plan);
            }
        }
        let has_transfers = plan.fetches.iter().any(|fetch| fetch.source != Source::Initial);
        let may_fail_early = kept.is_in_doubt || has_transfers || !plan.waits.is_empty();
        let queue = Some(kept.queue).filter(|_| kept.in_order && !may_fail_early);
        for it in &kept.uses {
            if let Some(allocation) = allocations.get_mut(&it.allocation) {
                allocation.record(it, kept.place, (queue, id), &around);
                if !allocation.sending.contains(&id) {
                    allocation.sending.push(id);
                }
            }
        }
        for ids in [&mut plan.waits, &mut plan.ends] {
            ids.sort_unstable();
            ids.dedup();
        }
        // A transfer that the command needs is started before the command, and ends after the
        // command was sent.
        for fetch in &plan.fetches {
            if let Source::Place(_) = fetch.source {
                for transfer in [fetch.departure, fetch.arrival] {
                    let mut node = Node::new(Stage::Sent);
                    node.allocations = vec![fetch.allocation];
                    self.nodes.insert(transfer, node);
                }
                plan.waits.push(fetch.arrival);
            }
        }
        if !self.rules.hold(Rule::ReadAfterArrival) {
            plan.waits.clear();
        }
        plan.waits.sort_unstable();
        plan.waits.dedup();
        Some(plan)
    }

    /// Notes that a tracked or formerly held command was sent with its transfers.
    pub fn sent(&mut self, id: CommandId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.stage = Stage::Sent;
        node.reads_host = None;
        let waiting = std::mem::take(&mut node.until_passed);
        let is_tracked =
            !node.allocations.is_empty() || node.writes_host.is_some() || node.settles.is_some();
        for allocation in &node.allocations {
            if let Some(allocation) = self.allocations.get_mut(allocation) {
                allocation.sent(id, node.only_wait, self.rules);
            }
        }
        if !is_tracked {
            self.nodes.remove(&id);
        }
        for (waiting, _) in waiting {
            self.unblock(waiting);
        }
    }

    /// Returns whether a command that is held back waits for the end of this one.
    pub fn is_awaited(&self, id: CommandId) -> bool {
        self.nodes.get(&id).is_some_and(|node| !node.until_ended.is_empty())
    }

    /// Notes that a command, transfer or client event has ended.
    pub fn ended(&mut self, id: CommandId, is_ok: bool) {
        let Some(node) = self.nodes.remove(&id) else { return };
        if let Some(shape) = node.writes_host {
            self.host.remove(id, &shape);
        }
        for allocation in &node.allocations {
            if let Some(allocation) = self.allocations.get_mut(allocation) {
                allocation.ended(id, is_ok, (self.rules, &self.lost));
            }
        }
        if let Some(context) = node.settles
            && let Some(writes) = self.settled.get_mut(&context)
        {
            writes.retain(|(_, write)| *write != id);
            if writes.is_empty() {
                self.settled.remove(&context);
            }
        }
        for (waiting, is_listed) in node.until_passed {
            if is_listed
                && !is_ok
                && self.rules.hold(Rule::FailedEventFails)
                && let Some(node) = self.nodes.get_mut(&waiting)
            {
                node.is_doomed = true;
            }
            self.unblock(waiting);
        }
        for waiting in node.until_ended {
            self.unblock(waiting);
        }
    }

    fn unblock(&mut self, id: CommandId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.blockers = node.blockers.saturating_sub(1);
        if node.blockers == 0 && node.stage == Stage::Held {
            self.ready.push_back(id);
        }
    }

    /// Returns the next step for a held command that may continue, in the order in which they
    /// became ready.
    pub fn next_action(&mut self, next: &mut dyn FnMut() -> CommandId) -> Option<Action> {
        loop {
            let id = self.ready.pop_front()?;
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            if node.is_doomed {
                self.ended(id, false);
                return Some(Action::Fail(id));
            }
            let Some(mut kept) = node.held.take() else { continue };
            let hazards = self.hazards(&kept);
            if !hazards.is_empty() {
                kept.is_host_checked = true;
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.held = Some(kept);
                }
                self.block(id, &hazards);
                return Some(Action::Await(id, blockers::ended_of(&hazards)));
            }
            let Some(mut plan) = self.plan(id, &kept, next) else {
                self.ended(id, false);
                return Some(Action::ContentLost(id));
            };
            self.note_sending(id, &kept, &plan);
            self.leave_out_line(&kept, &mut plan);
            return Some(Action::Send(id, plan));
        }
    }

    /// Returns whether [`Machine::next_action`] would return a step.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes that a blocking write, which ends with `id`, has returned. Drivers return when the
    /// bytes are in the buffer, so other queues of the context may use them without an event. In
    /// order, a write stands for those before it, whose returns other threads may tell later.
    pub fn settle(&mut self, context: ContextId, queue: QueueId, in_order: bool, id: CommandId) {
        let Self { settled, nodes, .. } = self;
        let stands =
            |id: &CommandId| in_order && nodes.get(id).is_none_or(|node| !node.is_in_doubt);
        let writes = settled.entry(context).or_default();
        if writes.iter().any(|(of, later)| *of == queue && *later > id && stands(later)) {
            return;
        }
        writes.retain(|(of, earlier)| !(*of == queue && *earlier < id && stands(&id)));
        writes.push((queue, id));
        self.nodes.entry(id).or_insert_with(|| Node::new(Stage::Sent)).settles = Some(context);
    }

    /// Returns the number of blocking writes of a context that have returned and are open. In an
    /// in-order queue one stands for all before it.
    pub fn settled_count(&self, context: ContextId) -> usize {
        self.settled.get(&context).map_or(0, Vec::len)
    }

    /// Returns the blocking writes that a command which follows all writes must wait for. The
    /// command is behind those of `own`, an in-order queue, in any case.
    pub fn unsettled(&self, context: ContextId, own: Option<QueueId>) -> Vec<CommandId> {
        let writes = self.settled.get(&context).map(Vec::as_slice).unwrap_or_default();
        writes.iter().filter(|(of, _)| Some(*of) != own).map(|(_, id)| *id).collect()
    }

    /// Returns whether the host may copy now, in place of a command. The caller keeps other threads
    /// from enqueueing into the queue until the copy is done.
    ///
    /// The function does not ask which part of the program's memory the copy uses. Suppose that a
    /// command before the copy has still to write that part. If the queue is behind that command,
    /// [`Machine::behind_queue`] names it, and the host may not copy. Otherwise an end orders the
    /// two: an end that the program was told, or one in the copy's wait list. Ends are told only
    /// after the writes of the commands before them, so that command has already written.
    pub fn may_copy(&self, copy: &InPlace) -> bool {
        let hold = |rule| self.rules.hold(rule);
        if (!copy.is_idle && hold(Rule::InPlaceWhenIdle))
            || (!copy.waits_ended && hold(Rule::InPlaceAfterWaits))
        {
            return false;
        }
        if self.nodes.is_empty() {
            return true;
        }
        let is_held = || !self.held_in(copy.queue).is_empty() && hold(Rule::InPlaceWhenNothingHeld);
        let is_unsettled = || {
            hold(Rule::InPlaceAfterBlockingWrites)
                && !self.unsettled(copy.context, copy.in_order.then_some(copy.queue)).is_empty()
        };
        let is_behind =
            || hold(Rule::InPlaceAfterWritersBefore) && !self.behind_queue(copy.queue).is_empty();
        !is_held() && !is_unsettled() && !is_behind()
    }
}

/// Returns the use as residency sees it. A write over all bytes that may not take place counts as a
/// write of some, because the old content may stay.
fn in_doubt(it: &Use, is_in_doubt: bool) -> Use {
    let may_leave_some = is_in_doubt && it.access == Access::Overwrite;
    Use { access: if may_leave_some { Access::Write } else { it.access }, ..*it }
}

impl Kept {
    fn new(command: &Submit<'_>) -> Self {
        Self {
            queue: command.queue,
            in_order: command.in_order,
            context: command.context,
            place: command.place,
            waits: command.waits.to_vec(),
            sync: command.sync,
            is_in_doubt: !command.waits.is_empty(),
            uses: command.uses.to_vec(),
            reads_host: command.reads_host,
            writes_host: command.writes_host,
            is_host_checked: false,
            gate: command.gate,
        }
    }
}
