//! Workers, links and threads that take their steps in a random order.

use rustc_hash::{FxHashMap, FxHashSet};

use super::chooser::{Chooser, LINKS};
use super::client::sent_name;
use super::effects::{host_initial, initial, stored};
use super::outcome::{Planned, Went};
use super::program::{CELL_BYTES, Fault, GRAIN_CELLS, HOST_CELLS, Op, PlannedAllocation, Program};
use crate::command::{Action, Fetch, Plan, Submit, Verdict};
use crate::machine::Machine;
use crate::names::{AllocationId, CommandId, ContextId, NodeId, QueueId};
use crate::{Access, GRAIN_BYTES, Use};

pub(super) const CONTEXT: ContextId = ContextId(1);
/// First names of events of operations, of markers before the client's own work, and of transfers.
const OF_EVENTS: u64 = 100;
const OF_MARKERS: u64 = 10_000;
pub(super) const OF_TRANSFERS: u64 = 1_000_000;

pub(super) fn event_of(index: usize) -> CommandId {
    CommandId(OF_EVENTS + index as u64)
}

/// A job of a worker.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) id: CommandId,
    pub(super) place: usize,
    /// The queue, and the index of its operation.
    pub(super) of: Option<(usize, usize)>,
    pub(super) waits: Vec<CommandId>,
    pub(super) ends: Vec<CommandId>,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    Command { payload: Vec<u64> },
    Marker,
    Depart(Fetch),
    Arrive(Fetch),
}

/// A message of a worker to the client.
pub(super) struct Told {
    pub(super) id: CommandId,
    pub(super) is_ok: bool,
    /// Cells of the program's memory, and their values.
    pub(super) data: Vec<(usize, u64)>,
}

#[derive(Clone, Debug)]
pub(super) enum Doing {
    Next,
    /// The machine has let the command of this operation be sent.
    Sending(usize, Plan),
    /// A blocking write waits until its bytes are taken.
    UntilPassed(usize),
    UntilKnown(usize),
    /// A blocking read in place waits for the commands before it.
    UntilReached(usize),
}

pub(super) struct World<'a> {
    pub(super) program: &'a Program,
    planned: &'a Planned,
    pub(super) machine: Machine,
    chooser: &'a mut Chooser,
    threads: Vec<(Vec<usize>, Doing)>,
    /// Operations whose commands are in their queues; then operations that have returned.
    pub(super) called: FxHashSet<usize>,
    pub(super) done: FxHashSet<usize>,
    pub(super) locked: FxHashSet<usize>,
    /// A command that the machine has let go, until its queue is free.
    pub(super) released: Option<(CommandId, Plan)>,
    pub(super) jobs: Vec<Job>,
    /// Messages about each queue, and about each place's transfers, in order. Drivers tell the ends
    /// of different queues in different threads, so these come in any order, even from one worker.
    pub(super) links: Vec<Vec<Told>>,
    /// Everything that has ended, with whether it ended well.
    pub(super) ended: FxHashMap<CommandId, bool>,
    pub(super) known: FxHashMap<CommandId, bool>,
    /// Ends that must be known before a command's end is told to the program.
    pub(super) behind: FxHashMap<CommandId, Vec<CommandId>>,
    pub(super) is_behind_writers: FxHashSet<CommandId>,
    /// Commands that were sent in each queue.
    pub(super) sent: Vec<Vec<CommandId>>,
    pub(super) arriving: FxHashMap<CommandId, Vec<u64>>,
    /// Functions of the program whose markers have ended.
    pub(super) functions: Vec<usize>,
    /// Commands that ran, whether well or not.
    pub(super) ran: FxHashSet<usize>,
    /// Names that workers were told. They know no other names.
    pub(super) told_workers: FxHashSet<CommandId>,
    pub(super) lost: FxHashSet<u32>,
    /// Whether an unplanned fault has occurred; then the commands that may fail because of it.
    pub(super) has_struck: bool,
    pub(super) excused: FxHashSet<usize>,
    /// Whether the client itself carries content from node to node. It does not check how the
    /// source came by the content.
    pub(super) is_relaying: bool,
    /// Transfers that bring nothing, because they are planned to fail or their source is lost.
    pub(super) failing_arrivals: FxHashSet<CommandId>,
    pub(super) memory: Vec<Vec<Vec<u64>>>,
    pub(super) host: [u64; HOST_CELLS],
    pub(super) names: u64,
    pub(super) held: u64,
    pub(super) started: usize,
    pub(super) in_place: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        (program, planned): (&'a Program, &'a Planned),
        mut machine: Machine,
        chooser: &'a mut Chooser,
    ) -> Self {
        let places = program.nodes.len();
        for (index, it) in program.allocations.iter().enumerate() {
            if places > 1 {
                let nodes = program.nodes.iter().map(|node| NodeId(*node)).collect();
                let (id, size) = (AllocationId(index as u64), it.cells as u64 * CELL_BYTES);
                machine.allocate(id, size, it.is_indivisible, nodes, it.has_initial);
            }
        }
        let cells = |of: usize, it: &PlannedAllocation| -> Vec<u64> {
            // With one place the content is there from the start. With several places the machine
            // has to bring it.
            let here = |cell| if it.has_initial { initial(of, cell) } else { 0 };
            (0..it.cells)
                .map(|cell| if places == 1 || !it.has_initial { here(cell) } else { 1 })
                .collect()
        };
        let memory = program.allocations.iter().enumerate().map(|(of, it)| cells(of, it));
        let threads = program.ops.iter().map(|(thread, _)| *thread + 1).max().unwrap_or(0);
        let of_thread = |thread| {
            let ops = (0..program.ops.len()).filter(|index| program.ops[*index].0 == thread);
            (ops.rev().collect(), Doing::Next)
        };
        let is_relaying = program.fault.is_some() && chooser.below(2) == 1;
        Self {
            program,
            planned,
            machine,
            chooser,
            threads: (0..threads).map(of_thread).collect(),
            called: FxHashSet::default(),
            done: FxHashSet::default(),
            locked: FxHashSet::default(),
            released: None,
            jobs: Vec::new(),
            links: (0..program.queues.len() + places).map(|_| Vec::new()).collect(),
            ended: FxHashMap::default(),
            known: FxHashMap::default(),
            behind: FxHashMap::default(),
            is_behind_writers: FxHashSet::default(),
            sent: vec![Vec::new(); program.queues.len()],
            arriving: FxHashMap::default(),
            functions: Vec::new(),
            ran: FxHashSet::default(),
            told_workers: FxHashSet::default(),
            lost: FxHashSet::default(),
            has_struck: false,
            excused: FxHashSet::default(),
            is_relaying,
            failing_arrivals: FxHashSet::default(),
            memory: vec![memory.collect(); places],
            host: std::array::from_fn(host_initial),
            names: OF_TRANSFERS,
            held: 0,
            started: 0,
            in_place: 0,
        }
    }

    /// Runs the program, and compares its memory with that of a sequential run.
    pub(super) fn run(&mut self) -> Result<(), String> {
        loop {
            let choices = self.choices();
            if choices.is_empty() {
                break;
            }
            let mut actors =
                choices.iter().map(|choice| self.actor(*choice)).collect::<Vec<_>>().into_iter();
            let choice = choices[self.chooser.pick(&mut actors)];
            self.step(choice);
        }
        let waits =
            |(ops, doing): &(Vec<usize>, Doing)| !ops.is_empty() || !matches!(doing, Doing::Next);
        if let Some(thread) = self.threads.iter().position(waits) {
            return Err(format!("thread {thread} waits for ever ({:?})", self.threads[thread].1));
        }
        if !self.jobs.is_empty() || self.machine.held() > 0 {
            return Err(format!("{} commands never end", self.jobs.len() + self.machine.held()));
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<(), String> {
        let failed = self.failed()?;
        let went = Went { failed, ran: std::mem::take(&mut self.ran) };
        let expected = self.planned.expected(self.program, &went);
        for (cell, (is, should)) in self.host.iter().zip(&expected.host).enumerate() {
            if should.is_some_and(|should| *is != should) {
                return Err(format!("cell {cell} of the program's memory is wrong"));
            }
        }
        for (of, cells) in expected.memory.iter().enumerate() {
            let place = self.last_place();
            for first in (0..cells.len()).step_by(GRAIN_CELLS) {
                let last = cells.len().min(first + GRAIN_CELLS);
                if !self.gather(of, place, (first, last))? {
                    continue;
                }
                let is = &self.memory[place][of];
                let is_wrong =
                    |cell: &usize| cells[*cell].is_some_and(|should| is[*cell] != should);
                if let Some(cell) = (first..last).find(is_wrong) {
                    return Err(format!(
                        "cell {cell} of allocation {of} is wrong at place {place}"
                    ));
                }
            }
        }
        if !self.machine.is_quiet() {
            return Err("the machine still waits for something".into());
        }
        Ok(())
    }

    /// Returns, for each operation, whether its event ended with an error. Each of these must have
    /// a reason.
    fn failed(&self) -> Result<Vec<bool>, String> {
        let planned = &self.planned.failing;
        let mut failed = vec![false; planned.len()];
        for (index, (_, op)) in self.program.ops.iter().enumerate() {
            let waits = match op {
                Op::Enqueue(command) => command.waits.as_slice(),
                Op::Event => &[],
                _ => continue,
            };
            let Some(is_ok) = self.known.get(&event_of(index)) else {
                return Err(format!("operation {index} never ended"));
            };
            failed[index] = !is_ok;
            let has_reason = planned[index]
                || self.excused.contains(&index)
                || waits.iter().any(|of| self.known.get(&event_of(*of)) == Some(&false));
            if !is_ok && !has_reason {
                return Err(format!("operation {index} ended with an error"));
            }
            if *is_ok && planned[index] {
                return Err(format!("operation {index} ended well"));
            }
        }
        Ok(failed)
    }

    /// Returns a random place that is not lost and has memory.
    fn last_place(&mut self) -> usize {
        let places = 0..self.program.nodes.len();
        let can_hold = |place: &usize| !self.is_lost(*place) && !self.has_no_memory(*place);
        let alive: Vec<usize> = places.filter(can_hold).collect();
        alive.get(self.chooser.below(alive.len())).copied().unwrap_or(0)
    }

    /// Makes a grain current at a place, as a last read would. Returns `false` if its content is
    /// lost, which only happens after an unplanned fault.
    fn gather(
        &mut self,
        of: usize,
        place: usize,
        (first, last): (usize, usize),
    ) -> Result<bool, String> {
        if self.program.nodes.len() == 1 {
            return Ok(true);
        }
        let id = CommandId(1);
        let end =
            (self.program.allocations[of].cells as u64 * CELL_BYTES).min(last as u64 * CELL_BYTES);
        let start = first as u64 * CELL_BYTES / GRAIN_BYTES * GRAIN_BYTES;
        let uses = [Use { allocation: AllocationId(of as u64), start, end, access: Access::Read }];
        let last = Submit {
            id,
            queue: QueueId(99),
            in_order: true,
            context: CONTEXT,
            place,
            waits: &[],
            sync: None,
            uses: &uses,
            reads_host: None,
            writes_host: None,
            gate: None,
        };
        let plan = match self.machine.submit(&last, &mut namer(&mut self.names)) {
            Verdict::Send { plan, .. } => plan,
            Verdict::ContentLost if self.has_struck => return Ok(false),
            verdict => {
                return Err(format!("the last read of allocation {of} gets {verdict:?}"));
            }
        };
        let has_started = self.send_fetches(&plan);
        self.machine.sent(id);
        while let Some(at) = (0..self.jobs.len()).find(|at| self.can_run(*at)) {
            self.run_job(at);
        }
        while let Some(link) = self.links.iter().position(|link| !link.is_empty()) {
            self.hear(link);
        }
        let has_failed = plan.waits.iter().any(|id| self.ended.get(id) == Some(&false));
        self.machine.ended(id, !has_failed);
        if has_failed && !self.has_struck {
            return Err(format!("the last read of allocation {of} fails"));
        }
        Ok(has_started && !has_failed)
    }

    pub(super) fn is_lost(&self, place: usize) -> bool {
        self.lost.contains(&self.program.nodes[place])
    }

    pub(super) fn has_no_memory(&self, place: usize) -> bool {
        self.program.fault == Some(Fault::NoMemory(place))
    }

    // -- choices of the next step -----------------------------------------------------------------

    fn choices(&mut self) -> Vec<Choice> {
        let mut choices = Vec::new();
        choices.extend((0..self.threads.len()).filter(|at| self.can_step(*at)).map(Choice::Thread));
        choices.extend((0..self.jobs.len()).filter(|at| self.can_run(*at)).map(Choice::Job));
        choices.extend((0..self.jobs.len()).filter(|at| self.can_fail(*at)).map(Choice::FailEarly));
        choices.extend(
            (0..self.links.len()).filter(|at| !self.links[*at].is_empty()).map(Choice::Link),
        );
        let can_begin = |at: &usize| self.is_known(marker_of(self.functions[*at]));
        choices.extend((0..self.functions.len()).filter(can_begin).map(Choice::Function));
        if self.released.is_none() && self.machine.has_ready() {
            choices.push(Choice::Release);
        }
        if let Some((id, _)) = &self.released
            && self.queue_of(*id).is_none_or(|queue| !self.locked.contains(&queue))
        {
            choices.push(Choice::SendReleased);
        }
        // Only while something else goes on, because otherwise the loss would have no effect.
        if let Some(Fault::Node(node)) = self.program.fault
            && !choices.is_empty()
            && !self.lost.contains(&node)
        {
            choices.push(Choice::Lose(node));
        }
        choices
    }

    /// Returns the number of the actor that takes the step, so that some actors can be slower than
    /// others.
    fn actor(&self, choice: Choice) -> usize {
        match choice {
            Choice::Thread(thread) => thread,
            Choice::Job(at) | Choice::FailEarly(at) => match self.jobs[at].of {
                Some((queue, _)) => 2 + queue,
                None => 5 + self.jobs[at].place,
            },
            Choice::Function(_) => 8,
            Choice::Release => 9,
            Choice::SendReleased => 10,
            Choice::Lose(_) => 11,
            Choice::Link(link) => LINKS + link,
        }
    }

    fn step(&mut self, choice: Choice) {
        match choice {
            Choice::Thread(thread) => self.step_thread(thread),
            Choice::Job(job) => self.run_job(job),
            Choice::FailEarly(job) => self.fail_job(job),
            Choice::Lose(node) => self.lose(node),
            Choice::Link(link) => self.hear(link),
            Choice::Function(at) => self.run_function(at),
            Choice::Release => {
                let action = self.machine.next_action(&mut namer(&mut self.names));
                match action {
                    Some(Action::Send(id, plan)) => self.released = Some((id, plan)),
                    Some(Action::Fail(id)) => self.fail_held(id),
                    Some(Action::ContentLost(id)) => {
                        self.excuse(index_of(id));
                        self.fail_held(id);
                    }
                    // This world receives from all links anyway.
                    Some(Action::Await(..)) | None => {}
                }
            }
            Choice::SendReleased => {
                if let Some((id, plan)) = self.released.take() {
                    self.send(index_of(id), &plan);
                    self.machine.sent(id);
                }
            }
        }
    }

    fn queue_of(&self, id: CommandId) -> Option<usize> {
        match &self.program.ops.get(index_of(id))?.1 {
            Op::Enqueue(command) => Some(command.queue),
            _ => None,
        }
    }

    /// Returns whether the program is told that a command has ended.
    pub(super) fn is_known(&self, id: CommandId) -> bool {
        let is_heard = |id: &CommandId| self.known.contains_key(id);
        is_heard(&id) && self.behind.get(&id).is_none_or(|behind| behind.iter().all(is_heard))
    }

    fn can_step(&self, thread: usize) -> bool {
        let (ops, doing) = &self.threads[thread];
        match doing {
            Doing::Sending(..) => true,
            Doing::UntilPassed(index) => self.machine.have_passed(&[event_of(*index)]),
            Doing::UntilKnown(index) => self.is_known(event_of(*index)),
            Doing::UntilReached(index) => self.is_known(marker_of(*index)),
            Doing::Next => {
                let Some(index) = ops.last() else { return false };
                let op = &self.program.ops[*index].1;
                let is_done = |of: &usize| self.done.contains(of);
                op.names().iter().all(is_done)
                    && match op {
                        Op::Wait(of) => self.is_known(event_of(*of)),
                        Op::Enqueue(command) => {
                            let is_before = |at: &usize| matches!(&self.program.ops[*at].1, Op::Enqueue(it) if it.queue == command.queue);
                            !self.locked.contains(&command.queue)
                                && (0..*index).filter(is_before).all(|at| self.called.contains(&at))
                        }
                        _ => true,
                    }
            }
        }
    }

    fn step_thread(&mut self, thread: usize) {
        let doing = std::mem::replace(&mut self.threads[thread].1, Doing::Next);
        match doing {
            Doing::Next => {
                let Some(index) = self.threads[thread].0.last().copied() else { return };
                match &self.program.ops[index].1 {
                    Op::Enqueue(command) => {
                        let doing = self.enqueue(index, command);
                        if !matches!(doing, Doing::Sending(..)) {
                            self.called.insert(index);
                        }
                        self.threads[thread].1 = doing;
                    }
                    Op::Event => self.machine.client_event(event_of(index)),
                    Op::Set(of, is_ok) => self.end_client_event(event_of(*of), *is_ok),
                    Op::Wait(_) => {}
                    Op::Store(cell) => self.host[*cell] = stored(index),
                }
                if matches!(self.threads[thread].1, Doing::Next) {
                    self.finish(thread, index);
                }
            }
            Doing::Sending(index, plan) => {
                self.send(index, &plan);
                let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
                self.machine.sent(sent_name(self.program, index, command));
                self.locked.remove(&command.queue);
                self.called.insert(index);
                self.threads[thread].1 = self.after_send(index, command);
                if matches!(self.threads[thread].1, Doing::Next) {
                    self.finish(thread, index);
                }
            }
            Doing::UntilPassed(index) => {
                let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
                self.threads[thread].1 = self.after_send(index, command);
                if matches!(self.threads[thread].1, Doing::Next) {
                    self.finish(thread, index);
                }
            }
            Doing::UntilKnown(index) => self.finish(thread, index),
            Doing::UntilReached(index) => {
                let is_ok = self.known.get(&marker_of(index)) == Some(&true);
                if is_ok {
                    self.copy_in_place(index);
                    self.ran.insert(index);
                }
                self.end_client_event(event_of(index), is_ok);
                self.finish(thread, index);
            }
        }
    }

    /// Notes that a command fails because of an unplanned fault, if one has occurred.
    pub(super) fn excuse(&mut self, index: usize) {
        if self.has_struck {
            self.excused.insert(index);
        }
    }

    fn finish(&mut self, thread: usize, index: usize) {
        self.done.insert(index);
        self.threads[thread].0.pop();
    }
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Thread(usize),
    Job(usize),
    /// A command fails as soon as something that it waits for has failed.
    FailEarly(usize),
    Lose(u32),
    Link(usize),
    Function(usize),
    Release,
    SendReleased,
}

pub(super) fn namer(names: &mut u64) -> impl FnMut() -> CommandId {
    move || {
        *names += 1;
        CommandId(*names)
    }
}

pub(super) fn marker_of(index: usize) -> CommandId {
    CommandId(OF_MARKERS + index as u64)
}

pub(super) fn index_of(id: CommandId) -> usize {
    let first = if id.0 >= OF_MARKERS { OF_MARKERS } else { OF_EVENTS };
    usize::try_from(id.0.saturating_sub(first)).unwrap_or(usize::MAX)
}

pub(super) fn allocation_of(fetch: &Fetch) -> usize {
    usize::try_from(fetch.allocation.0).unwrap_or(usize::MAX)
}

pub(super) fn fetch_cells(fetch: &Fetch) -> std::ops::Range<usize> {
    let cell = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    cell(fetch.start / CELL_BYTES)..cell(fetch.end.div_ceil(CELL_BYTES))
}
