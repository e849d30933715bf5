//! The representation of programs.

use std::fmt;

use crate::Access;

/// Size of a cell of an allocation in bytes. Two cells are a grain, so that writes of parts of
/// grains occur.
pub(crate) const CELL_BYTES: u64 = crate::GRAIN_BYTES / GRAIN_CELLS as u64;
/// Number of cells in a grain.
pub(crate) const GRAIN_CELLS: usize = 2;
/// Size of a cell of the program's memory in bytes, followed by the memory's address and number of
/// cells.
pub(crate) const HOST_CELL_BYTES: u64 = 64;
pub(crate) const HOST_START: u64 = 0x1000;
pub(crate) const HOST_CELLS: usize = 5;

/// A program that was planned.
#[derive(Clone, Debug)]
pub struct Program {
    /// Node of each place. With one place, host and device share memory.
    pub nodes: Vec<u32>,
    /// Place of each queue, and whether its commands run in order.
    pub queues: Vec<(usize, bool)>,
    pub allocations: Vec<PlannedAllocation>,
    /// The operations in an order in which they could run, each with its thread.
    pub ops: Vec<(usize, Op)>,
    /// A fault that occurs while the program runs, beside the failures that the program plans.
    pub fault: Option<Fault>,
}

/// An allocation of a program.
#[derive(Clone, Copy, Debug)]
pub struct PlannedAllocation {
    /// Number of cells.
    pub cells: usize,
    /// Whether the allocation moves as a whole.
    pub is_indivisible: bool,
    /// Whether the allocation has content from the beginning.
    pub has_initial: bool,
}

/// A fault at a moment that is not planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The transfer that starts after this number of other transfers fails. Its target then holds
    /// garbage.
    Transfer(usize),
    /// This node is lost.
    Node(u32),
    /// The device of this place has no memory for any allocation. Each command that uses an
    /// allocation there fails, and so does each transfer to or from there.
    NoMemory(usize),
}

/// A range of cells of an allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Index of the allocation.
    pub of: usize,
    /// Index of the first cell.
    pub at: usize,
    pub count: usize,
}

/// An operation of a thread of the program.
#[derive(Clone, Debug)]
pub enum Op {
    Enqueue(Command),
    Event,
    /// Sets the user event that the operation with this index made, well (`true`) or as failed.
    Set(usize, bool),
    /// Waits for the command that the operation with this index enqueued.
    Wait(usize),
    /// Stores a new value in a cell of the program's memory.
    Store(usize),
}

#[derive(Clone, Debug)]
pub struct Command {
    /// Index of the queue.
    pub queue: usize,
    /// Indices of the operations whose events are the wait list.
    pub waits: Vec<usize>,
    pub act: Act,
    /// Whether the call returns only when the command has ended.
    pub is_blocking: bool,
    /// Whether the worker refuses the command: it does not run, and fails.
    pub is_refused: bool,
}

/// The effect of a command.
#[derive(Clone, Debug)]
pub enum Act {
    /// Runs a kernel that reads and writes these cells.
    Kernel(Vec<(Span, Access)>),
    /// Writes cells of the program's memory into an allocation: every `pitch`th cell (third field),
    /// beginning with the first (second field).
    Write(Span, usize, usize),
    /// Reads cells of an allocation into such cells of the program's memory.
    Read(Span, usize, usize),
    /// Copies cells from one allocation to another.
    Copy(Span, Span),
    Marker,
    Barrier,
    /// Runs a function of the program, which changes this cell of its memory.
    Run(usize),
}

impl Op {
    pub(crate) fn command(&self) -> Option<&Command> {
        if let Self::Enqueue(command) = self { Some(command) } else { None }
    }

    /// Returns the indices of operations that this one names.
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

/// Returns the cells of the program's memory that a transfer of `count` cells uses.
pub(crate) fn host_cells(first: usize, pitch: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| first + index * pitch)
}

impl Program {
    pub(crate) fn removed(&self, index: usize) -> Option<Self> {
        let mut smaller = self.clone();
        let mut gone = vec![index];
        while let Some(index) = gone.pop() {
            if index >= smaller.ops.len() {
                return None;
            }
            smaller.ops.remove(index);
            let lost: Vec<usize> = (0..smaller.ops.len())
                .filter(
                    |at| matches!(smaller.ops[*at].1, Op::Set(of, _) | Op::Wait(of) if of == index),
                )
                .collect();
            for (_, op) in &mut smaller.ops {
                op.rename(index);
            }
            // From the back, so that the indices of the others stay right.
            gone.extend(lost);
        }
        Some(smaller)
    }

    /// Returns, for each operation, whether its event ends with an error.
    pub(crate) fn failing(&self) -> Vec<bool> {
        let mut failing = vec![false; self.ops.len()];
        for (_, op) in &self.ops {
            if let Op::Set(of, false) = op {
                failing[*of] = true;
            }
        }
        for (index, (_, op)) in self.ops.iter().enumerate() {
            if let Op::Enqueue(command) = op {
                let fails_itself = command.is_refused || self.lacks_memory(command);
                failing[index] = fails_itself || command.waits.iter().any(|of| failing[*of]);
            }
        }
        failing
    }

    /// Returns whether a command uses an allocation at a place that has no memory for it.
    pub(crate) fn lacks_memory(&self, command: &Command) -> bool {
        let uses_memory = !matches!(command.act, Act::Marker | Act::Barrier | Act::Run(_));
        uses_memory && self.fault == Some(Fault::NoMemory(self.queues[command.queue].0))
    }

    /// Returns the cells that an operation uses.
    pub(crate) fn accesses(&self, index: usize) -> Vec<Cell> {
        let host = |cell, writes| Cell { of: HOST, cell, writes };
        let span = |span: &Span, writes: bool| {
            let of = span.of;
            (span.at..span.at + span.count).map(move |cell| Cell { of, cell, writes })
        };
        match &self.ops[index].1 {
            Op::Store(cell) => vec![host(*cell, true)],
            Op::Enqueue(command) => match &command.act {
                Act::Kernel(uses) => {
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
}

/// Stands for the program's memory in place of the index of an allocation.
pub(crate) const HOST: usize = usize::MAX;

/// A cell of an allocation or of the program's memory that an operation uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) of: usize,
    pub(crate) cell: usize,
    pub(crate) writes: bool,
}

impl Cell {
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        (self.of, self.cell) == (other.of, other.cell) && (self.writes || other.writes)
    }
}

impl Program {
    /// Returns the ranges that the command is reported to overwrite whole.
    fn overwrites(&self, index: usize) -> Vec<Span> {
        let Op::Enqueue(command) = &self.ops[index].1 else { return Vec::new() };
        match &command.act {
            Act::Write(span, ..) | Act::Copy(_, span) => vec![*span],
            Act::Kernel(uses) => {
                let whole = uses.iter().filter(|(_, access)| *access == Access::Overwrite);
                whole.map(|(span, _)| *span).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the cells whose content is undefined between a refused command and the moment at
    /// which the program hears of the refusal. The old content is not brought for a write that
    /// replaces all of it. A place without memory keeps nothing that is brought to it, and gives
    /// nothing to other places. A reader there counts as well if another place may take the content
    /// from there before the failure is heard. With two places this concerns only content given at
    /// creation, because the machine is not told whether that has arrived.
    pub(crate) fn open_while_refused(&self, index: usize) -> Vec<Cell> {
        if self.ops[index].1.command().is_some_and(|command| self.lacks_memory(command)) {
            return self.brought_in_vain(index);
        }
        let is_refused = self.ops[index].1.command().is_some_and(|command| command.is_refused);
        let fills_its_grains = |span: &Span| {
            let PlannedAllocation { cells, is_indivisible, .. } = self.allocations[span.of];
            let begins = span.at.is_multiple_of(GRAIN_CELLS);
            let ends =
                (span.at + span.count).is_multiple_of(GRAIN_CELLS) || span.at + span.count == cells;
            if is_indivisible { span.count == cells } else { begins && ends }
        };
        if !is_refused || self.nodes.len() == 1 {
            return Vec::new();
        }
        let spans = self.overwrites(index).into_iter().filter(fills_its_grains);
        let cells = |span: Span| {
            (span.at..span.at + span.count).map(move |cell| Cell {
                of: span.of,
                cell,
                writes: true,
            })
        };
        spans.flat_map(cells).collect()
    }

    /// Returns the cells that other commands may look for at a place without memory because of this
    /// command, with all cells that move together with them.
    fn brought_in_vain(&self, index: usize) -> Vec<Cell> {
        let is_looked_for = |it: &Cell| {
            it.of != HOST
                && (it.writes || self.allocations[it.of].has_initial || self.nodes.len() > 2)
        };
        let mut used = self.accesses(index);
        used.retain(is_looked_for);
        let all = (0..self.allocations.len()).flat_map(|of| {
            let cells = 0..self.allocations[of].cells;
            cells.map(move |cell| Cell { of, cell, writes: true })
        });
        all.filter(|it| used.iter().any(|of| self.move_together(it, of))).collect()
    }

    /// Returns whether a transfer of one cell also brings the other: whole grains move, or whole
    /// allocations if they are indivisible.
    pub(crate) fn move_together(&self, one: &Cell, other: &Cell) -> bool {
        let is_same_grain = one.cell / GRAIN_CELLS == other.cell / GRAIN_CELLS;
        one.of == other.of && (is_same_grain || self.allocations[other.of].is_indivisible)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  nodes of places {:?}", self.nodes)?;
        writeln!(f, "  queues (place, in order) {:?}", self.queues)?;
        let allocations: Vec<_> = self
            .allocations
            .iter()
            .map(|it| (it.cells, it.is_indivisible, it.has_initial))
            .collect();
        writeln!(f, "  allocations (cells, indivisible, initial) {allocations:?}")?;
        if let Some(fault) = self.fault {
            writeln!(f, "  fault {fault:?}")?;
        }
        for (index, (thread, op)) in self.ops.iter().enumerate() {
            writeln!(f, "  {index:2} thread {thread}: {op:?}")?;
        }
        Ok(())
    }
}
