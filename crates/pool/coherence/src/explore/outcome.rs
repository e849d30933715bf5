//! The results that a program must give.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use super::effects::{apply, host_initial, initial, stored};
use super::order::{Order, Step};
use super::program::{
    Act, Cell, Command, HOST, HOST_CELLS, Op, PlannedAllocation, Program, host_cells,
};
use super::random::mix;
use crate::Access;

/// Memory at the end of a program. `None` stands for bytes that the memory model leaves open. They
/// are not compared.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) memory: Vec<Vec<Option<u64>>>,
    pub(super) host: Vec<Option<u64>>,
}

/// The course of a run, as far as it is not planned.
pub(super) struct Went {
    /// Operations whose events ended with an error.
    pub(super) failed: Vec<bool>,
    /// Commands that ran to their end, including those that were refused.
    pub(super) ran: FxHashSet<usize>,
}

struct Memory {
    /// The content of each allocation, followed by that of the program's memory.
    values: Vec<Vec<u64>>,
    /// Cells whose content is open.
    open: FxHashSet<(usize, usize)>,
    /// Cells that stay open, because operations use them in no order any more.
    racy: FxHashSet<(usize, usize)>,
}

/// The properties of a program that are known before it runs.
pub(super) struct Planned {
    /// Operations whose events end with an error.
    pub(super) failing: Vec<bool>,
    /// Among them the commands that wait for everything and are then refused.
    refused: Vec<bool>,
    order: Order,
    expected: Expected,
}

impl Planned {
    /// Returns `None` if the program waits in a circle.
    pub(super) fn of(program: &Program) -> Option<Self> {
        let (failing, broken) = (program.failing(), program.broken());
        let order = Order::of(program, &broken)?;
        let is_refused =
            |at: usize| failing[at] && !broken[at] && program.ops[at].1.command().is_some();
        let refused = (0..failing.len()).map(is_refused).collect();
        let torn = vec![false; failing.len()];
        let expected = run(program, &failing, &torn, &order, Memory::new(program));
        Some(Self { failing, refused, order, expected })
    }

    /// Returns the memory at the end of a sequential run in which the same commands fail.
    ///
    /// The cells that a command was to write are open after it failed unexpectedly. Such a command
    /// has not waited for earlier commands, so some operations behind it may be in no order. The
    /// cells that those use are open too.
    pub(super) fn expected(&self, program: &Program, went: &Went) -> Cow<'_, Expected> {
        // A refused command may also have failed before it was refused.
        let was_refused = |at: usize| !self.refused[at] || went.ran.contains(&at);
        if went.failed == self.failing && (0..program.ops.len()).all(was_refused) {
            return Cow::Borrowed(&self.expected);
        }
        let is_torn = |at: usize| went.failed[at] && !self.failing[at];
        let torn: Vec<bool> = (0..program.ops.len()).map(is_torn).collect();
        let mut memory = Memory::new(program);
        memory.racy = racy_cells(program, went, &torn, &self.order);
        memory.open.clone_from(&memory.racy);
        Cow::Owned(run(program, &went.failed, &torn, &self.order, memory))
    }
}

/// Runs the program sequentially.
fn run(
    program: &Program,
    failed: &[bool],
    torn: &[bool],
    order: &Order,
    mut memory: Memory,
) -> Expected {
    for step in &order.sequence {
        match step {
            Step::Do(index) => {
                if let Op::Store(cell) = &program.ops[*index].1 {
                    memory.host()[*cell] = stored(*index);
                    memory.close(HOST, *cell);
                }
            }
            Step::Run(index) => {
                let Op::Enqueue(command) = &program.ops[*index].1 else { continue };
                let accesses = || program.accesses(*index).into_iter();
                if torn[*index] {
                    memory
                        .open
                        .extend(accesses().filter(|it| it.writes).map(|it| (it.of, it.cell)));
                }
                if failed[*index] {
                    continue;
                }
                let reads_open = accesses()
                    .any(|it| reads(command, &it) && memory.open.contains(&(it.of, it.cell)));
                memory.run(*index, command);
                for it in accesses().filter(|it| it.writes) {
                    if reads_open {
                        memory.open.insert((it.of, it.cell));
                    } else {
                        memory.close(it.of, it.cell);
                    }
                }
            }
        }
    }
    memory.expected()
}

/// Returns the cells that operations use in no order, because of commands that failed unexpectedly.
fn racy_cells(
    program: &Program,
    went: &Went,
    torn: &[bool],
    order: &Order,
) -> FxHashSet<(usize, usize)> {
    let is_broken = |at: usize| went.failed[at] && !went.ran.contains(&at);
    let broken: Vec<bool> = (0..program.ops.len()).map(is_broken).collect();
    let Some(actual) = Order::of(program, &broken) else { return FxHashSet::default() };
    // Such a command had its effects after everything that it had to wait for. Only its end came
    // too early.
    let comes_after = |a: usize, b: usize| torn[a] && order.is_before(Step::Run(b), Step::Run(a));
    let races =
        { program.races(&actual) }.filter(|(a, b)| !comes_after(*a, *b) && !comes_after(*b, *a));
    let mut cells = FxHashSet::default();
    for (a, b) in races {
        for one in program.accesses(a) {
            if program.accesses(b).iter().any(|other| one.conflicts(other)) {
                cells.insert((one.of, one.cell));
            }
        }
    }
    cells
}

impl Memory {
    fn new(program: &Program) -> Self {
        let content = |(of, it): (usize, &PlannedAllocation)| -> Vec<u64> {
            (0..it.cells).map(|cell| if it.has_initial { initial(of, cell) } else { 0 }).collect()
        };
        let mut values: Vec<_> = program.allocations.iter().enumerate().map(content).collect();
        values.push((0..HOST_CELLS).map(host_initial).collect());
        Self { values, open: FxHashSet::default(), racy: FxHashSet::default() }
    }

    fn host(&mut self) -> &mut [u64] {
        self.values.last_mut().map_or(&mut [], Vec::as_mut_slice)
    }

    fn close(&mut self, of: usize, cell: usize) {
        if !self.racy.contains(&(of, cell)) {
            self.open.remove(&(of, cell));
        }
    }

    fn run(&mut self, index: usize, command: &Command) {
        let mut host: Vec<u64> = self.host().to_vec();
        if let Act::Run(cell) = command.act {
            host[cell] = mix(host[cell] ^ stored(index));
        }
        let taken: Vec<u64> = match &command.act {
            Act::Write(span, first, pitch) => {
                host_cells(*first, *pitch, span.count).map(|cell| host[cell]).collect()
            }
            _ => Vec::new(),
        };
        apply(index, &command.act, &mut self.values, &mut |cell, value| match value {
            Some(value) => {
                host[cell] = value;
                0
            }
            None => taken.get(cell).copied().unwrap_or_default(),
        });
        self.host().copy_from_slice(&host);
    }

    fn expected(self) -> Expected {
        let Self { values, open, .. } = self;
        let last = values.len() - 1;
        let cells = |(of, values): (usize, Vec<u64>)| -> Vec<Option<u64>> {
            let of = if of == last { HOST } else { of };
            let values = values.into_iter().enumerate();
            values.map(|(cell, value)| (!open.contains(&(of, cell))).then_some(value)).collect()
        };
        let mut memory: Vec<_> = values.into_iter().enumerate().map(cells).collect();
        let host = memory.pop().unwrap_or_default();
        Expected { memory, host }
    }
}

/// Returns whether the values that a command writes depend on this cell.
fn reads(command: &Command, it: &Cell) -> bool {
    match &command.act {
        Act::Kernel(uses) => { uses.iter() }.any(|(span, access)| {
            let is_in = span.of == it.of && (span.at..span.at + span.count).contains(&it.cell);
            is_in && *access != Access::Overwrite
        }),
        Act::Run(_) => true,
        _ => !it.writes,
    }
}
