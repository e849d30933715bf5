//! What each operation waits for, and what it changes for later operations.

use super::{
    Area, Command, Event, Fate, Ledger, Mapping, Mem, MemKind, NewCommand, Owner, Places, Prepared,
    Queue, Reject, Source, Work,
};
use crate::bits::Bits;
use crate::plan::{Act, Cmd, Op};

/// What a wait list means for the call or command that waits.
#[derive(Default)]
struct Waited {
    nodes: Vec<usize>,
    gates: Vec<usize>,
    fails: bool,
}

impl Ledger {
    /// Finds what an operation waits for.
    pub(super) fn ordered(&self, op: &Op) -> Result<Prepared, Reject> {
        let mut new = Prepared {
            start: self.started(op.thread),
            cmd: None,
            awaited: Vec::new(),
            awaits: false,
            accesses: Vec::new(),
            owed_to: Vec::new(),
        };
        if let Some(queue) = queue_of(&op.act) {
            self.follows_gated(queue, &new.start)?;
        }
        match &op.act {
            Act::Await { id } => {
                let node = self.signals[id];
                self.nodes.put_before(node, &mut new.start);
            }
            Act::SetGate { event, .. } => self.pays(*event, &new.start)?,
            Act::DropEvent { event } => {
                if let Source::Gate { set: None, .. } = self.events[event].source {
                    return Err(Reject::Gated { gates: vec![*event] });
                }
            }
            Act::DropQueue { queue } => {
                self.finished(*queue, &new.start)?;
            }
            Act::Finish { queue } => {
                new.awaited = self.finished(*queue, &new.start)?;
                new.awaits = true;
            }
            Act::Wait { events } => {
                let waited = self.waited(events);
                open(waited.gates)?;
                new.awaited = waited.nodes;
                new.awaits = true;
            }
            Act::Callback { event, sets: Some(gate), .. } => {
                let mut before = self.ended(*event, &new.start, false)?;
                before.unite(&new.start);
                self.pays(*gate, &before)?;
            }
            Act::AwaitCallback { callback } => {
                let (event, runs) = self.callbacks[callback];
                self.ended(event, &new.start, false)?;
                if let (Source::Cmd(cmd), true) = (&self.events[&event].source, runs) {
                    new.awaited = vec![self.cmds[*cmd].node];
                }
                new.awaits = true;
            }
            Act::Times { event } | Act::Status { event } => {
                self.ended(*event, &new.start, true)?;
            }
            Act::Enqueue { .. } | Act::TooBig { .. } | Act::ReadTooBig { .. } => {
                self.enqueued(op, &mut new)?;
            }
            _ => {}
        }
        Ok(new)
    }

    /// While a user event holds back a command, all later uses of its queue must come after the
    /// call that enqueued it. So a thread that waits for the queue knows whether it waits for that
    /// command.
    fn follows_gated(&self, queue: usize, start: &Bits) -> Result<(), Reject> {
        for &cmd in &self.queues[&queue].cmds {
            let known = &self.cmds[cmd];
            let at_start = &self.nodes[known.start].before;
            let is_held = !self.gates_of(cmd).is_empty()
                || self.is_late(&self.nodes[known.node].before, at_start);
            let matters = is_held || known.fate == Fate::Fails;
            if matters && !start.has(known.start) {
                return Err(Reject::Thread { thread: known.thread });
            }
        }
        Ok(())
    }

    /// Whether a command may be held back when it is enqueued, because its thread does not know yet
    /// that another thread has set a user event.
    fn is_late(&self, before: &Bits, start: &Bits) -> bool {
        self.events.values().any(|event| match event.source {
            Source::Gate { set: Some(node), .. } => before.has(node) && !start.has(node),
            _ => false,
        })
    }

    /// Rejects setting a user event before everything that `owed` lists for it.
    fn pays(&self, gate: usize, start: &Bits) -> Result<(), Reject> {
        if let Source::Gate { owed, .. } = &self.events[&gate].source {
            for &(node, owner) in owed {
                if !start.has(node) {
                    return Err(match owner {
                        Owner::Host(thread) => Reject::Thread { thread },
                        Owner::Cmd(cmd) => Reject::Command { cmd, op: self.cmds[cmd].op },
                    });
                }
            }
        }
        Ok(())
    }

    fn finished(&self, queue: usize, start: &Bits) -> Result<Vec<usize>, Reject> {
        let mut nodes = Vec::new();
        for &cmd in self.queues[&queue].cmds.iter().filter(|&&cmd| start.has(self.cmds[cmd].start))
        {
            open(self.gates_of(cmd).to_vec())?;
            if self.cmds[cmd].fate == Fate::Runs {
                nodes.push(self.cmds[cmd].node);
            }
        }
        Ok(nodes)
    }

    fn waited(&self, events: &[usize]) -> Waited {
        let mut waited = Waited::default();
        for event in events {
            match &self.events[event].source {
                Source::Cmd(cmd) => {
                    let known = &self.cmds[*cmd];
                    waited.gates.extend(&self.nodes[known.node].moment.gates);
                    match known.fate {
                        Fate::Runs => waited.nodes.push(known.node),
                        Fate::Fails => waited.fails = true,
                    }
                }
                Source::Gate { fails, set, .. } => {
                    waited.fails |= fails;
                    match set {
                        Some(node) if !fails => waited.nodes.push(*node),
                        Some(_) => {}
                        None => waited.gates.push(*event),
                    }
                }
            }
        }
        waited
    }

    /// Returns what has happened when an event has ended. With `surely`, rejects the use if the
    /// host does not know yet that the event has ended. Otherwise the event only has to end without
    /// further calls, except those that set user events.
    fn ended(&self, event: usize, start: &Bits, surely: bool) -> Result<Bits, Reject> {
        let (node, cmd) = match &self.events[&event].source {
            Source::Gate { set: None, .. } => return Err(Reject::Gated { gates: vec![event] }),
            Source::Gate { set: Some(node), .. } => (*node, None),
            Source::Cmd(cmd) => (self.cmds[*cmd].node, Some(*cmd)),
        };
        open(self.nodes[node].moment.gates.clone())?;
        if let Some(cmd) = cmd {
            let known = &self.cmds[cmd];
            if surely && known.fate == Fate::Runs && !start.has(node) {
                return Err(Reject::Command { cmd, op: known.op });
            }
            if known.fate == Fate::Fails && surely && !self.waited_for(event, start) {
                return Err(Reject::Invalid("no call has waited for the command that fails"));
            }
            self.flushed(cmd, start)?;
        }
        Ok(self.nodes.until(node))
    }

    fn waited_for(&self, event: usize, start: &Bits) -> bool {
        self.events[&event].waits.iter().any(|&node| start.has(node))
    }

    /// Rejects relying on a command whose queue has not been flushed since.
    fn flushed(&self, cmd: usize, start: &Bits) -> Result<(), Reject> {
        let known = &self.cmds[cmd];
        let since = |&&node: &&usize| start.has(node) && self.nodes.is_before(known.start, node);
        match self.queues[&known.queue].flushes.iter().find(since) {
            Some(_) => Ok(()),
            None => Err(Reject::Unflushed { queue: known.queue }),
        }
    }

    fn enqueued(&self, op: &Op, new: &mut Prepared) -> Result<(), Reject> {
        let none = Vec::new();
        let (queue, cmd, wait, blocking) = match &op.act {
            Act::Enqueue { queue, cmd, wait, blocking, .. } => (*queue, Some(cmd), wait, *blocking),
            Act::TooBig { queue, .. } => (*queue, None, &none, false),
            Act::ReadTooBig { queue, .. } => (*queue, None, &none, true),
            _ => return Ok(()),
        };
        let known = &self.queues[&queue];
        for event in wait {
            if let Source::Cmd(cmd) = self.events[event].source
                && self.cmds[cmd].queue != queue
            {
                self.flushed(cmd, &new.start)?;
            }
        }
        let Waited { mut nodes, mut gates, fails } = self.waited(wait);
        let full = wait.is_empty() && matches!(cmd, Some(Cmd::Marker | Cmd::Barrier));
        for &earlier in &known.cmds {
            let it = &self.cmds[earlier];
            let counts = !known.out_of_order || full || it.barrier;
            if !counts || !new.start.has(it.start) {
                continue;
            }
            if it.fate == Fate::Fails && !fails && !known.broken {
                return Err(Reject::Invalid("it follows a command that fails"));
            }
            gates.extend(&self.nodes[it.node].moment.gates);
            // What reads the result of a launch that cannot run comes after the launch, whether it
            // fails or not.
            if it.fate == Fate::Runs || known.broken {
                nodes.push(it.node);
            }
        }
        let mut before = new.start.clone();
        for node in nodes {
            self.nodes.put_before(node, &mut before);
        }
        gates.sort_unstable();
        gates.dedup();
        if blocking {
            open(gates.clone())?;
        }
        if let Some(Cmd::HotRead { mem, .. }) = cmd
            && !self.is_filled(*mem, &before)
        {
            return Err(Reject::Invalid("no fill is ordered before it"));
        }
        if !gates.is_empty() || self.is_late(&before, &new.start) {
            for (thread, last) in known.users.iter().enumerate() {
                if last.is_some_and(|node| !new.start.has(node)) {
                    return Err(Reject::Thread { thread });
                }
            }
        }
        let may_fail = !matches!(
            cmd,
            Some(
                Cmd::Map { .. }
                    | Cmd::Unmap { .. }
                    | Cmd::Marker
                    | Cmd::Barrier
                    | Cmd::Migrate { .. }
                    | Cmd::HotFill { .. }
                    | Cmd::HotRead { .. }
            )
        );
        if fails && !may_fail {
            return Err(Reject::Invalid("this command may not fail"));
        }
        let fate = if fails || cmd.is_none() { Fate::Fails } else { Fate::Runs };
        new.awaits = blocking;
        new.cmd = Some(NewCommand {
            before,
            gates,
            fate,
            barrier: matches!(cmd, Some(Cmd::Barrier)),
            queue,
        });
        Ok(())
    }

    /// Records what an operation that was added creates and ends.
    pub(super) fn enter(&mut self, op: &Op, places: Places, cmd: Option<usize>) {
        if let Some(queue) = queue_of(&op.act)
            && let Some(known) = self.queues.get_mut(&queue)
        {
            known.users[op.thread] = Some(places.end);
            if let Some(cmd) = cmd {
                known.cmds.push(cmd);
            }
            let blocks = matches!(
                op.act,
                Act::Flush { .. }
                    | Act::Finish { .. }
                    | Act::DropQueue { .. }
                    | Act::ReadTooBig { .. }
            );
            if blocks || matches!(op.act, Act::Enqueue { blocking: true, .. }) {
                known.flushes.push(places.end);
            }
        }
        match &op.act {
            Act::Signal { id } => {
                self.signals.insert(*id, places.start);
            }
            Act::NewQueue { queue, context, device, out_of_order, profiling } => {
                let new = Queue {
                    context: *context,
                    device: *device,
                    out_of_order: *out_of_order,
                    profiling: *profiling,
                    alive: true,
                    cmds: Vec::new(),
                    broken: false,
                    users: vec![None; self.threads.len()],
                    flushes: Vec::new(),
                };
                self.queues.insert(*queue, new);
            }
            Act::DropQueue { queue } => {
                self.queues.entry(*queue).and_modify(|it| it.alive = false);
            }
            Act::DropMem { mem } => {
                self.mems.entry(*mem).and_modify(|it| it.alive = false);
            }
            Act::DropEvent { event } => {
                self.events.entry(*event).and_modify(|it| it.alive = false);
            }
            Act::NewGate { event, context, fails } => {
                let source =
                    Source::Gate { fails: *fails, set: None, owed: Vec::new(), callback: false };
                self.events.insert(
                    *event,
                    Event { context: *context, alive: true, source, waits: Vec::new() },
                );
            }
            Act::SetGate { event, .. } => self.open_gate(*event, places.start),
            Act::Wait { events } => self.enter_wait(events, places.end),
            Act::Callback { event, callback, sets } => {
                self.callbacks.insert(*callback, (*event, !self.fails(*event)));
                if let (Some(gate), Source::Cmd(cmd)) = (sets, &self.events[event].source) {
                    let mut before = self.nodes.until(self.cmds[*cmd].node);
                    self.nodes.put_before(places.start, &mut before);
                    let node = self.node(before, Vec::new(), Work::End(self.places.len() - 1));
                    self.open_gate(*gate, node);
                }
            }
            Act::Enqueue { queue, cmd: what, event, .. } => {
                let context = self.queues[queue].context;
                if let (Some(event), Some(cmd)) = (event, cmd) {
                    let source = Source::Cmd(cmd);
                    self.events
                        .insert(*event, Event { context, alive: true, source, waits: Vec::new() });
                }
                self.enter_mapping(what, places, cmd);
            }
            Act::TooBig { queue, .. } => {
                self.queues.entry(*queue).and_modify(|it| it.broken = true);
            }
            _ => self.enter_memory(op),
        }
    }

    fn enter_memory(&mut self, op: &Op) {
        let (id, mut mem) = match &op.act {
            Act::NewBuffer { mem, context, size, .. } => {
                (*mem, fresh(*context, MemKind::Buffer, *size))
            }
            Act::NewSvm { mem, context, size } => (*mem, fresh(*context, MemKind::Svm, *size)),
            Act::NewImage { mem, context, width, height, .. } => {
                let kind = MemKind::Image { width: *width, height: *height };
                (*mem, fresh(*context, kind, width * height * 4))
            }
            Act::NewSub { mem, parent, origin, size } => {
                let mut new = self.mems[parent].clone();
                (new.kind, new.size) = (MemKind::Sub, *size);
                new.offset += origin;
                (*mem, new)
            }
            Act::NewView { mem, parent, pixels } => {
                let mut new = self.mems[parent].clone();
                (new.kind, new.size) = (MemKind::View { pixels: *pixels }, pixels * 4);
                (*mem, new)
            }
            _ => return,
        };
        if !matches!(mem.kind, MemKind::Sub | MemKind::View { .. }) {
            mem.root = id;
        }
        self.mems.insert(id, mem);
    }

    fn enter_wait(&mut self, events: &[usize], end: usize) {
        for event in events {
            let Some(known) = self.events.get_mut(event) else { continue };
            known.waits.push(end);
            if let Source::Cmd(cmd) = known.source {
                let queue = self.cmds[cmd].queue;
                self.queues.entry(queue).and_modify(|it| it.flushes.push(end));
            }
        }
    }

    fn enter_mapping(&mut self, what: &Cmd, places: Places, cmd: Option<usize>) {
        let Some(cmd) = cmd else { return };
        match what {
            Cmd::Map { mem, offset, len, mode, area } => {
                let map = Mapping { mem: *mem, offset: *offset, mode: *mode, cmd };
                self.areas.insert(*area, Area { len: *len, alive: true, map: Some(map) });
            }
            Cmd::Unmap { area } => {
                let Some(known) = self.areas.get_mut(area) else { return };
                known.alive = false;
                if let (Some(map), Some(node)) = (known.map, places.cmd) {
                    let root = self.mems[&map.mem].root;
                    self.unmapped(root, *area, node, cmd);
                }
            }
            _ => {}
        }
    }

    /// Sets a user event: what waited for it now comes after `set_at`.
    fn open_gate(&mut self, gate: usize, set_at: usize) {
        if let Some(Event { source: Source::Gate { set, callback, .. }, .. }) =
            self.events.get_mut(&gate)
        {
            *set = Some(set_at);
            *callback = !matches!(self.nodes[set_at].moment.work, Work::Start(_));
        }
        let before = self.nodes.until(set_at);
        for node in self.nodes.iter_mut() {
            if node.moment.gates.contains(&gate) {
                node.moment.gates.retain(|&it| it != gate);
                node.before.unite(&before);
            }
        }
    }
}

impl Command {
    /// Whether the command runs, so that it takes part in the program's order.
    pub fn runs(&self) -> bool {
        self.fate == Fate::Runs
    }
}

fn fresh(context: usize, kind: MemKind, size: usize) -> Mem {
    Mem { context, kind, root: 0, offset: 0, size, alive: true }
}

fn open(mut gates: Vec<usize>) -> Result<(), Reject> {
    gates.sort_unstable();
    gates.dedup();
    if gates.is_empty() { Ok(()) } else { Err(Reject::Gated { gates }) }
}

/// Returns the queue that an operation uses.
pub fn queue_of(act: &Act) -> Option<usize> {
    match act {
        Act::DropQueue { queue }
        | Act::Flush { queue }
        | Act::Finish { queue }
        | Act::Enqueue { queue, .. }
        | Act::TooBig { queue, .. }
        | Act::ReadTooBig { queue, .. } => Some(*queue),
        _ => None,
    }
}
