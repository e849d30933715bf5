//! The order of operations in a program, and the check that it has one result.

use super::program::{Act, Cell, Command, Op, Program};

impl Program {
    /// Returns the program without one operation and those that depend on it, if the rest still
    /// ends and has one result.
    pub(crate) fn without(&self, index: usize) -> Option<Self> {
        self.removed(index).filter(|smaller| smaller.is_valid() && smaller.first_unset().is_none())
    }

    /// Returns the first user event that no operation sets.
    pub(crate) fn first_unset(&self) -> Option<usize> {
        let is_set =
            |of: usize| self.ops.iter().any(|(_, op)| matches!(op, Op::Set(set, _) if *set == of));
        (0..self.ops.len()).find(|index| matches!(self.ops[*index].1, Op::Event) && !is_set(*index))
    }

    /// Returns whether the program ends and has one result.
    pub(crate) fn is_valid(&self) -> bool {
        for (index, (_, op)) in self.ops.iter().enumerate() {
            if let Op::Set(of, _) = op
                && self.ops[..index]
                    .iter()
                    .any(|(_, other)| matches!(other, Op::Set(set, _) if set == of))
            {
                return false;
            }
        }
        let broken = self.broken();
        let is_waited_for = |op: &Op, index: usize| match op {
            Op::Wait(of) => broken[*of],
            Op::Enqueue(command) => command.is_blocking && broken[index],
            _ => false,
        };
        // A call that fails because of its wait list may return before commands that its command
        // would have come after.
        if self.ops.iter().enumerate().any(|(index, (_, op))| is_waited_for(op, index)) {
            return false;
        }
        // The program must also end if nothing fails.
        let Some(unbroken) = Order::of(self, &vec![false; self.ops.len()]) else { return false };
        if self.uses_what_is_open(&unbroken) {
            return false;
        }
        let order = if broken.contains(&true) { Order::of(self, &broken) } else { Some(unbroken) };
        order.is_some_and(|order| self.races(&order).next().is_none())
    }

    /// Returns, for each operation, whether it is a command that ends without having waited,
    /// because an event of its wait list fails.
    pub(crate) fn broken(&self) -> Vec<bool> {
        let failing = self.failing();
        let has_failing_wait = |op: &Op| {
            op.command().is_some_and(|command| command.waits.iter().any(|of| failing[*of]))
        };
        self.ops.iter().map(|(_, op)| has_failing_wait(op)).collect()
    }

    /// Returns pairs of operations that use the same cells in no order and conflict. Commands that
    /// fail as planned use nothing.
    pub(crate) fn races(&self, order: &Order) -> impl Iterator<Item = (usize, usize)> {
        let broken = self.broken();
        let used = |index: usize| if broken[index] { Vec::new() } else { self.accesses(index) };
        let accesses: Vec<_> = (0..self.ops.len()).map(used).collect();
        let pairs = (0..self.ops.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs.filter(move |(a, b)| {
            let conflict = accesses[*a].iter().any(|x| accesses[*b].iter().any(|y| x.conflicts(y)));
            conflict && !order.are_ordered(self, *a, *b)
        })
    }

    /// Returns whether an operation uses bytes that a refused write over all of them has left
    /// undefined. The program may use them again when it has waited for the refusal. A command that
    /// fails counts as well, because the bytes are brought to it, over the old content that its
    /// place may have, before its wait list has failed. It does not count if it only reads and no
    /// other command has written these bytes, because then no place had the content with which they
    /// were created.
    fn uses_what_is_open(&self, order: &Order) -> bool {
        let broken = self.broken();
        let writes = |at: usize, bytes: &Cell| {
            self.accesses(at).iter().any(|it| it.writes && self.move_together(it, bytes))
        };
        let brings_nothing = |other: usize, refused: usize, bytes: &Cell| {
            let is_writer = |at: usize| at != refused && writes(at, bytes);
            let lacks_memory =
                self.ops[refused].1.command().is_some_and(|it| self.lacks_memory(it));
            let is_unwritten =
                self.allocations[bytes.of].has_initial && !(0..self.ops.len()).any(is_writer);
            broken[other] && is_unwritten && !lacks_memory
        };
        (0..self.ops.len()).any(|refused| {
            let open = self.open_while_refused(refused);
            let is_heard = |later: usize| {
                (0..self.ops.len()).any(|at| {
                    matches!(self.ops[at].1, Op::Wait(of) if of == refused)
                        && order.is_before(Step::Do(at), Step::Do(later))
                })
            };
            !open.is_empty() && { 0..self.ops.len() }.any(|other| {
                other != refused
                    && self.accesses(other).iter().any(|x| {
                        open.iter().any(|y| x.conflicts(y) && !brings_nothing(other, refused, y))
                    })
                    && !order.is_before(Step::Run(other), Step::Run(refused))
                    && !is_heard(other)
            })
        })
    }
}

/// A moment in the run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A thread does the operation.
    Do(usize),
    /// The operation's command runs.
    Run(usize),
}

/// The order in which the moments of a program happen.
pub(crate) struct Order {
    /// For each moment, the set of moments that it happens before.
    before: Vec<u128>,
    /// The moments in an order in which their effects may come. A command has its effect when it
    /// runs.
    pub(crate) sequence: Vec<Step>,
}

fn number(step: Step) -> usize {
    match step {
        Step::Do(index) => 2 * index,
        Step::Run(index) => 2 * index + 1,
    }
}

impl Order {
    /// Returns `None` if the program waits in a circle. `broken` commands wait for nothing.
    pub(crate) fn of(program: &Program, broken: &[bool]) -> Option<Self> {
        let steps = 2 * program.ops.len();
        if steps > 128 {
            return None;
        }
        let mut after = vec![0u128; steps];
        Self::add_edges(program, broken, &mut |from, to| after[number(from)] |= 1 << number(to));
        let mut open = vec![0; steps];
        after.iter().for_each(|set| members(*set).for_each(|to| open[to] += 1));
        let mut ready: Vec<usize> = (0..steps).rev().filter(|step| open[*step] == 0).collect();
        let mut sequence = Vec::with_capacity(steps);
        while let Some(step) = ready.pop() {
            sequence.push(step);
            for to in members(after[step]) {
                open[to] -= 1;
                if open[to] == 0 {
                    ready.push(to);
                }
            }
        }
        if sequence.len() < steps {
            return None;
        }
        let mut before = vec![0u128; steps];
        for step in sequence.iter().rev() {
            before[*step] = members(after[*step]).fold(after[*step], |all, to| all | before[to]);
        }
        let step = |number: usize| {
            if number.is_multiple_of(2) { Step::Do(number / 2) } else { Step::Run(number / 2) }
        };
        Some(Self { before, sequence: sequence.into_iter().map(step).collect() })
    }

    fn add_edges(program: &Program, broken: &[bool], edge: &mut dyn FnMut(Step, Step)) {
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
                Op::Enqueue(command) => {
                    Self::add_command_edges(program, index, (command, broken[index]), edge);
                }
                _ => {}
            }
        }
    }

    fn add_command_edges(
        program: &Program,
        index: usize,
        (command, is_broken): (&Command, bool),
        edge: &mut dyn FnMut(Step, Step),
    ) {
        let same_queue = |at: &usize| {
            program.ops[*at].1.command().is_some_and(|other| other.queue == command.queue)
        };
        let earlier = || (0..index).rev().filter(same_queue);
        if let Some(last) = earlier().next() {
            // The order of calls into one queue is that of the plan, even across threads.
            edge(Step::Do(last), Step::Do(index));
        }
        if is_broken {
            return;
        }
        for of in &command.waits {
            edge(Step::Run(*of), Step::Run(index));
            if matches!(program.ops[*of].1, Op::Event) {
                let set = (0..program.ops.len())
                    .find(|at| matches!(program.ops[*at].1, Op::Set(set, _) if set == *of));
                if let Some(set) = set {
                    edge(Step::Do(set), Step::Run(index));
                }
            }
        }
        let in_order = program.queues[command.queue].1;
        let is_sync = |command: &Command| matches!(command.act, Act::Marker | Act::Barrier);
        let is_barrier = |at: &usize| {
            program.ops[*at].1.command().is_some_and(|other| matches!(other.act, Act::Barrier))
        };
        // All earlier commands, not only the last one, because that one may be broken and end
        // before those before it.
        if in_order || (is_sync(command) && command.waits.is_empty()) {
            earlier().for_each(|before| edge(Step::Run(before), Step::Run(index)));
        } else {
            { earlier() }
                .filter(is_barrier)
                .for_each(|before| edge(Step::Run(before), Step::Run(index)));
        }
    }

    pub(crate) fn is_before(&self, one: Step, other: Step) -> bool {
        self.before[number(one)] >> number(other) & 1 != 0
    }

    /// Returns whether the effects of two operations cannot overlap. For the program's own code, a
    /// command may access the program's memory at any time from its call to its end.
    fn are_ordered(&self, program: &Program, a: usize, b: usize) -> bool {
        let is_command = |at: usize| program.ops[at].1.command().is_some();
        match (is_command(a), is_command(b)) {
            (true, true) => {
                self.is_before(Step::Run(a), Step::Run(b))
                    || self.is_before(Step::Run(b), Step::Run(a))
            }
            (true, false) => {
                self.is_before(Step::Run(a), Step::Do(b))
                    || self.is_before(Step::Do(b), Step::Do(a))
            }
            (false, true) => self.are_ordered(program, b, a),
            (false, false) => {
                self.is_before(Step::Do(a), Step::Do(b)) || self.is_before(Step::Do(b), Step::Do(a))
            }
        }
    }
}

/// Returns the indices of the bits that are set.
fn members(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}
