//! Programs that have one result.

use std::fmt;

use super::random::Random;
use crate::Access;

/// Bytes of a cell of an allocation: two cells are a grain, so that writes of parts of grains occur.
pub(crate) const CELL_BYTES: u64 = crate::GRAIN_BYTES / 2;
/// Bytes of a cell of the program's memory, and its address.
pub(crate) const HOST_CELL_BYTES: u64 = 64;
pub(crate) const HOST_START: u64 = 0x1000;
pub(crate) const HOST_CELLS: usize = 5;

const OPS_MAX: usize = 14;
const THREADS_MAX: usize = 2;

/// A planned program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The node of each place. One place: memory that the host and the device share.
    pub nodes: Vec<u32>,
    /// The place of each queue, and whether its commands run in order.
    pub queues: Vec<(usize, bool)>,
    /// Cells of each allocation, whether it moves as a whole, and whether it has content from the beginning.
    pub allocations: Vec<(usize, bool, bool)>,
    /// The operations in an order in which they could run, each with its thread.
    pub ops: Vec<(usize, Op)>,
}

/// Cells of an allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The allocation.
    pub of: usize,
    /// First cell.
    pub at: usize,
    /// Number of cells.
    pub count: usize,
}

/// What a thread of the program does.
#[derive(Clone, Debug)]
pub enum Op {
    /// Enqueues a command.
    Enqueue(Command),
    /// Makes a user event.
    Event,
    /// Sets the user event that the operation of this index made, well or not.
    Set(usize, bool),
    /// Waits for the command that the operation of this index enqueued.
    Wait(usize),
    /// Stores a new value in a cell of the program's memory.
    Store(usize),
}

/// A command.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its queue.
    pub queue: usize,
    /// Indices of operations whose events are its wait list.
    pub waits: Vec<usize>,
    /// What it does.
    pub act: Act,
    /// Whether the call returns only when the command has ended.
    pub is_blocking: bool,
}

/// What a command does.
#[derive(Clone, Debug)]
pub enum Act {
    /// A kernel that reads and writes cells; the worker refuses it if `is_refused`.
    Kernel {
        /// What it uses, and how.
        uses: Vec<(Span, Access)>,
        /// It does not run, and fails.
        is_refused: bool,
    },
    /// Writes cells of the program's memory, every `pitch`th one from the first on, into an allocation.
    Write(Span, usize, usize),
    /// Reads cells of an allocation into the program's memory.
    Read(Span, usize, usize),
    /// Copies between allocations.
    Copy(Span, Span),
    /// A marker.
    Marker,
    /// A barrier.
    Barrier,
    /// A function of the program: changes this cell of its memory.
    Run(usize),
}

impl Op {
    fn command(&self) -> Option<&Command> {
        if let Self::Enqueue(command) = self { Some(command) } else { None }
    }

    /// Indices of operations that this one names.
    pub(crate) fn names(&self) -> Vec<usize> {
        match self {
            Self::Enqueue(command) => command.waits.clone(),
            Self::Set(of, _) | Self::Wait(of) => vec![*of],
            Self::Event | Self::Store(_) => Vec::new(),
        }
    }

    fn rename(&mut self, gone: usize) {
        let step = |index: &mut usize| *index -= usize::from(*index > gone);
        match self {
            Self::Enqueue(command) => {
                command.waits.retain(|index| *index != gone);
                command.waits.iter_mut().for_each(step);
            }
            Self::Set(of, _) | Self::Wait(of) => step(of),
            Self::Event | Self::Store(_) => {}
        }
    }
}

/// Cells of the program's memory that a transfer of `count` cells uses.
pub(crate) fn host_cells(first: usize, pitch: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| first + index * pitch)
}

impl Program {
    pub(crate) fn plan(random: &mut Random) -> Self {
        let places = [1, 2, 2, 3][random.below(4)];
        // Two places of one node are two drivers of it.
        let nodes: Vec<u32> = (0..places).map(|place| if random.once_in(4) { 0 } else { place }).collect();
        let queues = (0..2 + random.below(2)).map(|_| (random.below(nodes.len()), !random.once_in(3)));
        let queues = queues.collect();
        let allocations =
            (0..1 + random.below(2)).map(|_| (2 + random.below(4), random.once_in(4), random.once_in(3)));
        let mut program = Self { nodes, queues, allocations: allocations.collect(), ops: Vec::new() };
        let threads = 1 + random.below(THREADS_MAX);
        let ops = 3 + random.below(OPS_MAX - 2);
        let mut tries = 0;
        while program.ops.len() < ops && tries < 6 * OPS_MAX {
            tries += 1;
            let op = program.any_op(random);
            program.ops.push((random.below(threads), op));
            if !program.is_valid() {
                program.ops.pop();
            }
        }
        program.set_all(threads, random);
        // An event that only a thread could set that waits for it is taken out.
        while let Some(of) = program.first_unset() {
            match program.removed(of).filter(Self::is_valid) {
                Some(smaller) => program = smaller,
                None => program.ops.clear(),
            }
        }
        program
    }

    fn first_unset(&self) -> Option<usize> {
        let is_set = |of: usize| self.ops.iter().any(|(_, op)| matches!(op, Op::Set(set, _) if *set == of));
        (0..self.ops.len()).find(|index| matches!(self.ops[*index].1, Op::Event) && !is_set(*index))
    }

    /// Sets all user events that nobody has set.
    fn set_all(&mut self, threads: usize, random: &mut Random) {
        let is_set = |of: usize| self.ops.iter().any(|(_, op)| matches!(op, Op::Set(set, _) if *set == of));
        let made = (0..self.ops.len()).filter(|index| matches!(self.ops[*index].1, Op::Event));
        let open: Vec<usize> = made.filter(|of| !is_set(*of)).collect();
        for of in open {
            let ok = !random.once_in(5);
            // Some thread can do it without closing a circle: one that waits for nothing else.
            let first = random.below(threads);
            for thread in (0..threads).map(|step| (first + step) % threads) {
                self.ops.push((thread, Op::Set(of, ok)));
                if self.is_valid() {
                    break;
                }
                self.ops.pop();
            }
        }
    }

    fn any_op(&self, random: &mut Random) -> Op {
        let pick = |random: &mut Random, wanted: fn(&Op) -> bool| {
            let all: Vec<usize> = (0..self.ops.len()).filter(|index| wanted(&self.ops[*index].1)).collect();
            all.get(random.below(all.len())).copied()
        };
        match random.below(12) {
            0 => Op::Event,
            1 => match pick(random, |op| matches!(op, Op::Event)) {
                Some(of) => Op::Set(of, !random.once_in(4)),
                None => Op::Event,
            },
            2 => match pick(random, |op| op.command().is_some()) {
                Some(of) => Op::Wait(of),
                None => Op::Store(random.below(HOST_CELLS)),
            },
            3 => Op::Store(random.below(HOST_CELLS)),
            _ => Op::Enqueue(self.any_command(random)),
        }
    }

    fn any_command(&self, random: &mut Random) -> Command {
        let with_event: Vec<usize> = (0..self.ops.len())
            .filter(|index| matches!(self.ops[*index].1, Op::Enqueue(_) | Op::Event))
            .collect();
        let count = [0, 0, 1, 1, 2][random.below(5)];
        let mut waits: Vec<usize> = (0..count)
            .filter_map(|_| {
                // Mostly recent ones: long chains are where the state is.
                let back = random.below(4).min(random.below(8));
                with_event.len().checked_sub(1 + back).and_then(|at| with_event.get(at)).copied()
            })
            .collect();
        waits.sort_unstable();
        waits.dedup();
        let queue = random.below(self.queues.len());
        let act = self.any_act(random);
        let is_transfer = matches!(act, Act::Write(..) | Act::Read(..));
        Command { queue, waits, act, is_blocking: is_transfer && random.once_in(2) }
    }

    fn any_span(&self, random: &mut Random) -> Span {
        let of = random.below(self.allocations.len());
        let cells = self.allocations[of].0;
        let at = random.below(cells);
        let count = if random.once_in(2) { cells - at } else { 1 + random.below(cells - at) };
        Span { of, at, count }
    }

    fn any_act(&self, random: &mut Random) -> Act {
        let host = |random: &mut Random, span: Span| {
            let pitch = 1 + random.below(2);
            let count = span.count.min(1 + (HOST_CELLS - 1) / pitch);
            let reach = 1 + (count - 1) * pitch;
            (Span { count, ..span }, random.below(1 + HOST_CELLS - reach), pitch)
        };
        match random.below(11) {
            0..4 => {
                let span = self.any_span(random);
                let (span, first, pitch) = host(random, span);
                if random.once_in(2) { Act::Write(span, first, pitch) } else { Act::Read(span, first, pitch) }
            }
            4 => {
                let (from, to) = (self.any_span(random), self.any_span(random));
                let count = from.count.min(to.count);
                if from.of == to.of {
                    return Act::Marker;
                }
                Act::Copy(Span { count, ..from }, Span { count, ..to })
            }
            5 => Act::Marker,
            6 => Act::Barrier,
            7 => Act::Run(random.below(HOST_CELLS)),
            _ => {
                let access = |random: &mut Random| match random.below(3) {
                    0 => Access::Read,
                    1 => Access::Write,
                    _ => Access::Overwrite,
                };
                let mut uses = vec![(self.any_span(random), access(random))];
                if random.once_in(2) {
                    let more = self.any_span(random);
                    // One use for each allocation: what a kernel does to bytes that it gets twice is its own affair.
                    if more.of != uses[0].0.of {
                        uses.push((more, access(random)));
                    }
                }
                // No kernel is known to write all of its bytes, so what a refused one was to replace is there.
                let is_whole = uses.iter().any(|(_, access)| *access == Access::Overwrite);
                Act::Kernel { uses, is_refused: !is_whole && random.once_in(6) }
            }
        }
    }

    /// The program without one operation and what cannot be without it, if it still ends and has one result.
    pub(crate) fn without(&self, index: usize) -> Option<Self> {
        self.removed(index).filter(|smaller| smaller.is_valid() && smaller.first_unset().is_none())
    }

    fn removed(&self, index: usize) -> Option<Self> {
        let mut smaller = self.clone();
        let mut gone = vec![index];
        while let Some(index) = gone.pop() {
            if index >= smaller.ops.len() {
                return None;
            }
            smaller.ops.remove(index);
            let lost: Vec<usize> = (0..smaller.ops.len())
                .filter(|at| matches!(smaller.ops[*at].1, Op::Set(of, _) | Op::Wait(of) if of == index))
                .collect();
            for (_, op) in &mut smaller.ops {
                op.rename(index);
            }
            // From the back, so that the indices of the others stay right.
            gone.extend(lost);
        }
        Some(smaller)
    }

    /// Whether the program ends and has one result.
    fn is_valid(&self) -> bool {
        for (index, (_, op)) in self.ops.iter().enumerate() {
            if let Op::Set(of, _) = op
                && self.ops[..index].iter().any(|(_, other)| matches!(other, Op::Set(set, _) if set == of))
            {
                return false;
            }
        }
        let failing = self.failing();
        let is_waited_for = |op: &Op, index: usize| match op {
            Op::Wait(of) => failing[*of],
            Op::Enqueue(command) => command.is_blocking && failing[index],
            _ => false,
        };
        // A call that fails may return before what its command would have come after.
        if self.ops.iter().enumerate().any(|(index, (_, op))| is_waited_for(op, index)) {
            return false;
        }
        let ends = Order::of(self, &vec![false; self.ops.len()]).is_some();
        ends && Order::of(self, &failing).is_some_and(|order| !self.has_race(&order))
    }

    /// Which operations' events end with an error.
    pub(crate) fn failing(&self) -> Vec<bool> {
        let mut failing = vec![false; self.ops.len()];
        for (_, op) in &self.ops {
            if let Op::Set(of, false) = op {
                failing[*of] = true;
            }
        }
        for (index, (_, op)) in self.ops.iter().enumerate() {
            if let Op::Enqueue(command) = op {
                let is_refused = matches!(command.act, Act::Kernel { is_refused: true, .. });
                failing[index] = is_refused || command.waits.iter().any(|of| failing[*of]);
            }
        }
        failing
    }

    fn has_race(&self, order: &Order) -> bool {
        let accesses: Vec<_> = (0..self.ops.len()).map(|index| self.accesses(index)).collect();
        (0..self.ops.len()).any(|a| {
            (0..a).any(|b| {
                let conflict = accesses[a].iter().any(|x| accesses[b].iter().any(|y| x.conflicts(y)));
                conflict && !order.are_ordered(self, a, b)
            })
        })
    }

    /// Cells that an operation uses.
    fn accesses(&self, index: usize) -> Vec<Cell> {
        let host = |cell, writes| Cell { of: usize::MAX, cell, writes };
        let span = |span: &Span, writes: bool| {
            let of = span.of;
            (span.at..span.at + span.count).map(move |cell| Cell { of, cell, writes })
        };
        match &self.ops[index].1 {
            Op::Store(cell) => vec![host(*cell, true)],
            Op::Enqueue(command) => match &command.act {
                Act::Kernel { uses, .. } => {
                    uses.iter().flat_map(|(it, access)| span(it, *access != Access::Read)).collect()
                }
                Act::Write(it, first, pitch) => {
                    let cells = host_cells(*first, *pitch, it.count).map(|cell| host(cell, false));
                    span(it, true).chain(cells).collect()
                }
                Act::Read(it, first, pitch) => {
                    let cells = host_cells(*first, *pitch, it.count).map(|cell| host(cell, true));
                    span(it, false).chain(cells).collect()
                }
                Act::Copy(from, to) => span(from, false).chain(span(to, true)).collect(),
                Act::Run(cell) => vec![host(*cell, true)],
                Act::Marker | Act::Barrier => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Operations in an order in which their effects may come; commands stand for when they run.
    pub(crate) fn sequence(&self) -> Vec<Step> {
        Order::of(self, &self.failing()).map(|order| order.sequence).unwrap_or_default()
    }
}

struct Cell {
    of: usize,
    cell: usize,
    writes: bool,
}

impl Cell {
    fn conflicts(&self, other: &Self) -> bool {
        (self.of, self.cell) == (other.of, other.cell) && (self.writes || other.writes)
    }
}

/// A moment of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A thread does the operation.
    Do(usize),
    /// The operation's command runs.
    Run(usize),
}

/// What happens before what.
struct Order {
    /// For each moment those that it happens before.
    before: Vec<u128>,
    sequence: Vec<Step>,
}

fn number(step: Step) -> usize {
    match step {
        Step::Do(index) => 2 * index,
        Step::Run(index) => 2 * index + 1,
    }
}

impl Order {
    /// `None` if the program waits in a circle. What `failing` commands wait for does not count.
    fn of(program: &Program, failing: &[bool]) -> Option<Self> {
        let steps = 2 * program.ops.len();
        if steps > 128 {
            return None;
        }
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); steps];
        Self::add_edges(program, failing, &mut |from, to| after[number(from)].push(number(to)));
        let mut open = vec![0; steps];
        after.iter().flatten().for_each(|to| open[*to] += 1);
        let mut ready: Vec<usize> = (0..steps).rev().filter(|step| open[*step] == 0).collect();
        let mut sequence = Vec::with_capacity(steps);
        while let Some(step) = ready.pop() {
            sequence.push(step);
            for to in &after[step] {
                open[*to] -= 1;
                if open[*to] == 0 {
                    ready.push(*to);
                }
            }
        }
        if sequence.len() < steps {
            return None;
        }
        let mut before = vec![0u128; steps];
        for step in sequence.iter().rev() {
            before[*step] = after[*step].iter().fold(0, |all, to| all | 1 << to | before[*to]);
        }
        let step = |number: usize| {
            if number.is_multiple_of(2) { Step::Do(number / 2) } else { Step::Run(number / 2) }
        };
        Some(Self { before, sequence: sequence.into_iter().map(step).collect() })
    }

    fn add_edges(program: &Program, failing: &[bool], edge: &mut dyn FnMut(Step, Step)) {
        for (index, (thread, op)) in program.ops.iter().enumerate() {
            edge(Step::Do(index), Step::Run(index));
            let earlier = |wanted: &dyn Fn(usize, &Op) -> bool| {
                (0..index).rev().find(|at| wanted(program.ops[*at].0, &program.ops[*at].1))
            };
            if let Some(before) = earlier(&|other, _| other == *thread) {
                edge(Step::Do(before), Step::Do(index));
                // A blocking call returns when its command has ended.
                if program.ops[before].1.command().is_some_and(|command| command.is_blocking) {
                    edge(Step::Run(before), Step::Do(index));
                }
            }
            for of in op.names() {
                // The event comes from the call that made it, when that call returns.
                edge(Step::Do(of), Step::Do(index));
                if program.ops[of].1.command().is_some_and(|command| command.is_blocking) {
                    edge(Step::Run(of), Step::Do(index));
                }
            }
            match op {
                Op::Wait(of) => edge(Step::Run(*of), Step::Do(index)),
                Op::Enqueue(command) => Self::add_command_edges(program, index, (command, failing), edge),
                _ => {}
            }
        }
    }

    fn add_command_edges(
        program: &Program,
        index: usize,
        (command, failing): (&Command, &[bool]),
        edge: &mut dyn FnMut(Step, Step),
    ) {
        // A command whose wait list fails ends without waiting for the rest of it.
        let has_failing_wait = command.waits.iter().any(|of| failing[*of]);
        for of in command.waits.iter().filter(|_| !has_failing_wait) {
            edge(Step::Run(*of), Step::Run(index));
            if matches!(program.ops[*of].1, Op::Event) {
                let set = (0..program.ops.len())
                    .find(|at| matches!(program.ops[*at].1, Op::Set(set, _) if set == *of));
                if let Some(set) = set {
                    edge(Step::Do(set), Step::Run(index));
                }
            }
        }
        let same_queue =
            |at: &usize| program.ops[*at].1.command().is_some_and(|other| other.queue == command.queue);
        let earlier: Vec<usize> = (0..index).rev().filter(same_queue).collect();
        if let Some(last) = earlier.first() {
            // The order of calls into one queue is the plan's, whatever their threads.
            edge(Step::Do(*last), Step::Do(index));
        }
        let in_order = program.queues[command.queue].1;
        let is_sync =
            |at: usize| program.ops[at].1.command().filter(|it| matches!(it.act, Act::Marker | Act::Barrier));
        if in_order {
            earlier.first().iter().for_each(|last| edge(Step::Run(**last), Step::Run(index)));
            return;
        }
        if is_sync(index).is_some() && command.waits.is_empty() {
            earlier.iter().for_each(|before| edge(Step::Run(*before), Step::Run(index)));
        }
        let is_barrier = |at: &&usize| matches!(is_sync(**at), Some(it) if matches!(it.act, Act::Barrier));
        if let Some(barrier) = earlier.iter().find(is_barrier) {
            edge(Step::Run(*barrier), Step::Run(index));
        }
    }

    fn is_before(&self, one: Step, other: Step) -> bool {
        self.before[number(one)] >> number(other) & 1 != 0
    }

    /// Whether the effects of two operations cannot overlap. What a command does in the program's memory may be done
    /// at any time from its call to its end, as far as the program's own code sees.
    fn are_ordered(&self, program: &Program, a: usize, b: usize) -> bool {
        let is_command = |at: usize| program.ops[at].1.command().is_some();
        match (is_command(a), is_command(b)) {
            (true, true) => {
                self.is_before(Step::Run(a), Step::Run(b)) || self.is_before(Step::Run(b), Step::Run(a))
            }
            (true, false) => {
                self.is_before(Step::Run(a), Step::Do(b)) || self.is_before(Step::Do(b), Step::Do(a))
            }
            (false, true) => self.are_ordered(program, b, a),
            (false, false) => {
                self.is_before(Step::Do(a), Step::Do(b)) || self.is_before(Step::Do(b), Step::Do(a))
            }
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  nodes of places {:?}", self.nodes)?;
        writeln!(f, "  queues (place, in order) {:?}", self.queues)?;
        writeln!(f, "  allocations (cells, indivisible, initial) {:?}", self.allocations)?;
        for (index, (thread, op)) in self.ops.iter().enumerate() {
            writeln!(f, "  {index:2} thread {thread}: {op:?}")?;
        }
        Ok(())
    }
}
