//! Workers, links and threads that take their steps in a random order.

use rustc_hash::{FxHashMap, FxHashSet};

use super::effects::{host_use, initial, reference, stored};
use super::plan::{Act, CELL_BYTES, Command, HOST_CELLS, Op, Program, Span, host_cells};
use super::random::{Random, mix};
use crate::command::{Action, Fetch, InPlace, Plan, Source, Submit, Sync, Verdict};
use crate::machine::Machine;
use crate::names::{AllocationId, CommandId, ContextId, NodeId, QueueId};
use crate::{Access, Use};

const CONTEXT: ContextId = ContextId(1);
/// Names: of the event of an operation, of the marker before a function of the program, and of transfers.
const OF_EVENTS: u64 = 100;
const OF_MARKERS: u64 = 10_000;
pub(super) const OF_TRANSFERS: u64 = 1_000_000;

pub(super) fn event_of(index: usize) -> CommandId {
    CommandId(OF_EVENTS + index as u64)
}

/// What a worker has to do.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) id: CommandId,
    pub(super) place: usize,
    /// The queue, and its operation.
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

/// What a worker tells the client.
pub(super) struct Told {
    pub(super) id: CommandId,
    pub(super) is_ok: bool,
    /// Cells of the program's memory, and their values.
    pub(super) data: Vec<(usize, u64)>,
}

#[derive(Clone, Debug)]
enum Doing {
    Next,
    /// The machine has said that the command of this operation is sent.
    Sending(usize, Plan),
    /// A blocking write waits until its bytes are taken.
    UntilPassed(usize),
    UntilKnown(usize),
    /// A blocking read in place waits for what is before it.
    UntilReached(usize),
}

pub(super) struct World<'a> {
    pub(super) program: &'a Program,
    pub(super) machine: Machine,
    pub(super) random: Random,
    threads: Vec<(Vec<usize>, Doing)>,
    /// Operations whose commands are in their queues, and operations that have returned.
    pub(super) called: FxHashSet<usize>,
    pub(super) done: FxHashSet<usize>,
    pub(super) locked: FxHashSet<usize>,
    /// A command that the machine has let go, until its queue is free.
    pub(super) released: Option<(CommandId, Plan)>,
    pub(super) jobs: Vec<Job>,
    /// What is told of each queue, and of each place's transfers, in order. Drivers tell the ends of different queues in
    /// different threads, so those come in any order, also from one worker.
    pub(super) links: Vec<Vec<Told>>,
    /// How everything that has ended did.
    pub(super) ended: FxHashMap<CommandId, bool>,
    pub(super) known: FxHashMap<CommandId, bool>,
    /// What must be known before an end is told to the program.
    pub(super) behind: FxHashMap<CommandId, Vec<CommandId>>,
    is_behind_writers: FxHashSet<CommandId>,
    /// Commands of each queue that were sent.
    pub(super) sent: Vec<Vec<CommandId>>,
    pub(super) arriving: FxHashMap<CommandId, Vec<u64>>,
    pub(super) functions: Vec<usize>,
    pub(super) memory: Vec<Vec<Vec<u64>>>,
    pub(super) host: [u64; HOST_CELLS],
    pub(super) names: u64,
    pub(super) held: u64,
    pub(super) transfers: u64,
    pub(super) in_place: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(program: &'a Program, mut machine: Machine, random: Random) -> Self {
        let places = program.nodes.len();
        for (index, (cells, is_indivisible, has_initial)) in program.allocations.iter().enumerate() {
            if places > 1 {
                let nodes = program.nodes.iter().map(|node| NodeId(*node)).collect();
                let (id, size) = (AllocationId(index as u64), *cells as u64 * CELL_BYTES);
                machine.allocate(id, size, *is_indivisible, nodes, *has_initial);
            }
        }
        let cells = |of: usize, (cells, _, has_initial): &(usize, bool, bool)| -> Vec<u64> {
            // With one place its content is there; with several the machine has to bring it.
            let here = |cell| if *has_initial { initial(of, cell) } else { 0 };
            (0..*cells).map(|cell| if places == 1 || !has_initial { here(cell) } else { 1 }).collect()
        };
        let memory = program.allocations.iter().enumerate().map(|(of, it)| cells(of, it));
        let threads = program.ops.iter().map(|(thread, _)| *thread + 1).max().unwrap_or(0);
        let of_thread = |thread| {
            let ops = (0..program.ops.len()).filter(|index| program.ops[*index].0 == thread);
            (ops.rev().collect(), Doing::Next)
        };
        Self {
            program,
            machine,
            random,
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
            memory: vec![memory.collect(); places],
            host: std::array::from_fn(|cell| mix(0x1057 + cell as u64)),
            names: OF_TRANSFERS,
            held: 0,
            transfers: 0,
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
            let choice = choices[self.random.below(choices.len())];
            self.step(choice);
        }
        let waits = |(ops, doing): &(Vec<usize>, Doing)| !ops.is_empty() || !matches!(doing, Doing::Next);
        if let Some(thread) = self.threads.iter().position(waits) {
            return Err(format!("thread {thread} waits for ever ({:?})", self.threads[thread].1));
        }
        if !self.jobs.is_empty() || self.machine.held() > 0 {
            return Err(format!("{} commands never end", self.jobs.len() + self.machine.held()));
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<(), String> {
        let (memory, host) = reference(self.program);
        let failing = self.program.failing();
        for (index, fails) in failing.iter().enumerate() {
            let id = event_of(index);
            if let Some(is_ok) = self.known.get(&id)
                && is_ok == fails
            {
                return Err(format!(
                    "operation {index} ended {}",
                    if *is_ok { "well" } else { "with an error" }
                ));
            }
        }
        for (cell, (is, should)) in self.host.iter().zip(&host).enumerate() {
            if is != should {
                return Err(format!("cell {cell} of the program's memory is wrong"));
            }
        }
        for (of, cells) in memory.iter().enumerate() {
            let place = self.random.below(self.program.nodes.len());
            self.gather(of, place)?;
            for (cell, should) in cells.iter().enumerate() {
                if self.memory[place][of][cell] != *should {
                    return Err(format!("cell {cell} of allocation {of} is wrong at place {place}"));
                }
            }
        }
        if !self.machine.is_quiet() {
            return Err("the machine still waits for something".into());
        }
        Ok(())
    }

    /// Makes an allocation current at a place, as a last read would.
    fn gather(&mut self, of: usize, place: usize) -> Result<(), String> {
        if self.program.nodes.len() == 1 {
            return Ok(());
        }
        let id = CommandId(1);
        let end = self.program.allocations[of].0 as u64 * CELL_BYTES;
        let uses = [Use { allocation: AllocationId(of as u64), start: 0, end, access: Access::Read }];
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
        let verdict = self.machine.submit(&last, &mut namer(&mut self.names));
        let Verdict::Send { plan, .. } = verdict else {
            return Err(format!("the last read of allocation {of} is told: {verdict:?}"));
        };
        self.send_fetches(&plan);
        self.machine.sent(id);
        while let Some(at) = (0..self.jobs.len()).find(|at| self.can_run(*at)) {
            self.run_job(at);
        }
        while let Some(link) = self.links.iter().position(|link| !link.is_empty()) {
            self.hear(link);
        }
        self.machine.ended(id, true);
        Ok(())
    }

    // -- what can happen next ------------------------------------------------------------------------------------

    fn choices(&mut self) -> Vec<Choice> {
        let mut choices = Vec::new();
        choices.extend((0..self.threads.len()).filter(|at| self.can_step(*at)).map(Choice::Thread));
        choices.extend((0..self.jobs.len()).filter(|at| self.can_run(*at)).map(Choice::Job));
        choices.extend((0..self.links.len()).filter(|at| !self.links[*at].is_empty()).map(Choice::Link));
        choices.extend((0..self.functions.len()).map(Choice::Function));
        if self.released.is_none() && self.machine.has_ready() {
            choices.push(Choice::Release);
        }
        if let Some((id, _)) = &self.released
            && self.queue_of(*id).is_none_or(|queue| !self.locked.contains(&queue))
        {
            choices.push(Choice::SendReleased);
        }
        choices
    }

    fn step(&mut self, choice: Choice) {
        match choice {
            Choice::Thread(thread) => self.step_thread(thread),
            Choice::Job(job) => self.run_job(job),
            Choice::Link(link) => self.hear(link),
            Choice::Function(at) => self.run_function(at),
            Choice::Release => {
                let action = self.machine.next_action(&mut namer(&mut self.names));
                match action {
                    Some(Action::Send(id, plan)) => self.released = Some((id, plan)),
                    Some(Action::Fail(id) | Action::ContentLost(id)) => self.fail_held(id),
                    // All links of this world bring what comes.
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

    /// Whether the program is told that a command has ended.
    fn is_known(&self, id: CommandId) -> bool {
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
                }
                self.end_client_event(event_of(index), is_ok);
                self.finish(thread, index);
            }
        }
    }

    fn finish(&mut self, thread: usize, index: usize) {
        self.done.insert(index);
        self.threads[thread].0.pop();
    }

    // -- enqueueing ----------------------------------------------------------------------------------------------

    /// Whether the host shares the memory with the device, so that it may copy in place.
    fn is_shared(&self, command: &Command) -> bool {
        self.program.nodes.len() == 1 && matches!(command.act, Act::Write(..) | Act::Read(..))
    }

    fn enqueue(&mut self, index: usize, command: &Command) -> Doing {
        let id = event_of(index);
        let waits: Vec<CommandId> = command.waits.iter().map(|of| event_of(*of)).collect();
        let in_order = self.program.queues[command.queue].1;
        if waits.iter().any(|id| self.known.get(id) == Some(&false)) {
            // A wait list that is known to have failed fails the command without the machine.
            self.known.insert(id, false);
            self.ended.insert(id, false);
            return Doing::Next;
        }
        let (reads_host, writes_host) = host_use(command);
        let in_place = InPlace {
            queue: QueueId(command.queue as u64),
            in_order,
            context: CONTEXT,
            is_idle: self.sent[command.queue].iter().all(|id| self.known.contains_key(id)),
            waits_ended: waits.iter().all(|id| self.known.get(id) == Some(&true) && self.is_known(*id)),
            host: reads_host.or(writes_host),
        };
        if self.is_shared(command) && self.machine.may_copy(&in_place) {
            self.in_place += 1;
            self.copy_in_place(index);
            self.end_client_event(id, true);
            return Doing::Next;
        }
        let waits: Vec<_> = waits.into_iter().filter(|id| !self.is_known(*id)).collect();
        let uses = self.uses(command);
        let sync = match command.act {
            Act::Marker => Some(Sync { is_listed: !command.waits.is_empty(), is_barrier: false }),
            Act::Barrier => Some(Sync { is_listed: !command.waits.is_empty(), is_barrier: true }),
            _ => None,
        };
        let name = sent_name(self.program, index, command);
        let verdict = self.machine.submit(
            &Submit {
                id: name,
                queue: QueueId(command.queue as u64),
                in_order,
                context: CONTEXT,
                place: self.program.queues[command.queue].0,
                waits: &waits,
                sync,
                uses: &uses,
                reads_host,
                writes_host,
                gate: (name != id).then_some(id),
            },
            &mut namer(&mut self.names),
        );
        match verdict {
            Verdict::Send { plan, .. } => {
                self.locked.insert(command.queue);
                Doing::Sending(index, plan)
            }
            Verdict::Hold { .. } => {
                self.held += 1;
                if !command.is_blocking {
                    return Doing::Next;
                }
                match command.act {
                    Act::Write(..) => Doing::UntilPassed(index),
                    _ => self.after_send(index, command),
                }
            }
            Verdict::ContentLost => Doing::UntilKnown(index),
        }
    }

    fn after_send(&mut self, index: usize, command: &Command) -> Doing {
        match command.act {
            _ if !command.is_blocking => Doing::Next,
            Act::Write(..) if !self.is_behind_writers.contains(&event_of(index)) => {
                self.settle(index, command);
                Doing::Next
            }
            _ if reads_in_place(self.program, command) => Doing::UntilReached(index),
            _ => Doing::UntilKnown(index),
        }
    }

    /// A blocking write has returned: other queues of the context see its bytes.
    fn settle(&mut self, index: usize, command: &Command) {
        let id = event_of(index);
        if !self.known.contains_key(&id) {
            let (queue, in_order) = (QueueId(command.queue as u64), self.program.queues[command.queue].1);
            self.machine.settle(CONTEXT, queue, in_order, id);
        }
    }

    fn uses(&self, command: &Command) -> Vec<Use> {
        if self.program.nodes.len() == 1 {
            return Vec::new();
        }
        let of = |span: &Span, access| Use {
            allocation: AllocationId(span.of as u64),
            start: span.at as u64 * CELL_BYTES,
            end: (span.at + span.count) as u64 * CELL_BYTES,
            access,
        };
        match &command.act {
            Act::Kernel { uses, .. } => uses.iter().map(|(span, access)| of(span, *access)).collect(),
            Act::Write(span, ..) => vec![of(span, Access::Overwrite)],
            Act::Read(span, ..) => vec![of(span, Access::Read)],
            Act::Copy(from, to) => vec![of(from, Access::Read), of(to, Access::Overwrite)],
            Act::Marker | Act::Barrier | Act::Run(_) => Vec::new(),
        }
    }

    fn send(&mut self, index: usize, plan: &Plan) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        self.send_fetches(plan);
        let id = sent_name(self.program, index, command);
        if command.waits.iter().any(|of| self.known.get(&event_of(*of)) == Some(&false)) {
            // The client itself fails a command whose wait list is known to have failed when it is sent. The transfers
            // of the plan take place, because the machine counts on them.
            self.machine.ended(id, false);
            return self.fail_held(id);
        }
        let mut waits: Vec<CommandId> = command.waits.iter().map(|of| event_of(*of)).collect();
        waits.extend(&plan.waits);
        let work = match &command.act {
            _ if id != event_of(index) => Work::Marker,
            Act::Write(span, first, pitch) => {
                let payload = host_cells(*first, *pitch, span.count).map(|cell| self.host[cell]).collect();
                Work::Command { payload }
            }
            _ => Work::Command { payload: Vec::new() },
        };
        let place = self.program.queues[command.queue].0;
        self.behind.insert(id, plan.behind.clone());
        if plan.is_behind_writers {
            self.is_behind_writers.insert(id);
        }
        self.sent[command.queue].push(id);
        let of = Some((command.queue, index));
        self.jobs.push(Job { id, place, of, waits, ends: plan.ends.clone(), work });
    }

    fn send_fetches(&mut self, plan: &Plan) {
        for fetch in &plan.fetches {
            self.transfers += 1;
            match fetch.source {
                Source::Initial => {
                    for cell in fetch_cells(fetch) {
                        let of = allocation_of(fetch);
                        self.memory[fetch.target][of][cell] = initial(of, cell);
                    }
                }
                Source::Place(source) => {
                    let job = |id, place, ends: &[CommandId], work| Job {
                        id,
                        place,
                        of: None,
                        waits: Vec::new(),
                        ends: ends.to_vec(),
                        work,
                    };
                    let depart = Work::Depart(fetch.clone());
                    self.jobs.push(job(fetch.departure, source, &fetch.source_waits, depart));
                    let arrive = Work::Arrive(fetch.clone());
                    self.jobs.push(job(fetch.arrival, fetch.target, &fetch.target_waits, arrive));
                }
            }
        }
    }

    fn copy_in_place(&mut self, index: usize) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        match &command.act {
            Act::Write(span, first, pitch) => {
                for (cell, host) in (span.at..).zip(host_cells(*first, *pitch, span.count)) {
                    self.memory[0][span.of][cell] = self.host[host];
                }
            }
            Act::Read(span, first, pitch) => {
                for (cell, host) in (span.at..).zip(host_cells(*first, *pitch, span.count)) {
                    self.host[host] = self.memory[0][span.of][cell];
                }
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Thread(usize),
    Job(usize),
    Link(usize),
    Function(usize),
    Release,
    SendReleased,
}

fn namer(names: &mut u64) -> impl FnMut() -> CommandId {
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

/// The name of what is sent for an operation: of its command, or of the marker before what the client runs itself.
fn sent_name(program: &Program, index: usize, command: &Command) -> CommandId {
    let is_marker = matches!(command.act, Act::Run(_)) || reads_in_place(program, command);
    if is_marker { marker_of(index) } else { event_of(index) }
}

/// A blocking read of memory that the host shares waits until it is its turn, and copies itself.
fn reads_in_place(program: &Program, command: &Command) -> bool {
    program.nodes.len() == 1 && command.is_blocking && matches!(command.act, Act::Read(..))
}

pub(super) fn allocation_of(fetch: &Fetch) -> usize {
    usize::try_from(fetch.allocation.0).unwrap_or(usize::MAX)
}

pub(super) fn fetch_cells(fetch: &Fetch) -> std::ops::Range<usize> {
    let cell = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    cell(fetch.start / CELL_BYTES)..cell(fetch.end.div_ceil(CELL_BYTES))
}
