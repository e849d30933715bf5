//! Loops that may wait for a value which another thread of the same block has yet to store.
//!
//! A device may run the threads of a block one after the other from barrier to barrier, so such a
//! loop would never end there. This analysis asks whether another thread can reach a store between
//! the same two barriers as the loop. Only barriers that all threads of the block reach together
//! count. If there is no such store, then only other blocks or the host can end the loop, and it
//! stays unchanged.

use std::collections::HashSet;

use super::address_form::AddressForms;
use super::conditions::BranchConditions;
use super::effects;
use super::flow::ControlFlow;
use super::linear::LinearSums;
use super::regions::Regions;
use super::uniform::Uniformity;
use crate::ir::{Entry, Function, Instruction, Module, Opcode, Space, Statement};

/// Largest number of statements that the searches of one kernel visit. Each search walks through
/// the kernel once. A search beyond this number assumes a store, which only costs speed.
const STEPS_MAX: usize = 4_000_000;

/// A loop that waits.
pub(super) struct WaitingLoop {
    /// The block that the loop begins with.
    pub head: usize,
    /// The instructions that poll the value.
    pub polls: Vec<usize>,
    /// Whether the value may lie in shared memory.
    pub is_generic: bool,
}

/// A statement that stores a value which other threads can see.
struct Store {
    at: usize,
    is_shared: bool,
    /// The number of the thread that executes the statement, if only one thread does.
    thread: Option<i64>,
}

pub(super) struct Peers<'a> {
    function: &'a Function,
    flow: &'a ControlFlow,
    uniform: &'a Uniformity,
    stores: Vec<Store>,
    /// The barriers that all threads of the block reach together.
    block_barriers: HashSet<usize>,
    /// The number of the thread that executes each block, if only one thread does.
    threads: Vec<Option<i64>>,
    steps: usize,
}

impl<'a> Peers<'a> {
    pub(super) fn of(
        module: &Module,
        entry: &Entry,
        function: &'a Function,
        flow: &'a ControlFlow,
        uniform: &'a Uniformity,
    ) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut this = Self {
            function,
            flow,
            uniform,
            stores: Vec::new(),
            block_barriers: HashSet::new(),
            threads: vec![None; flow.blocks.len()],
            steps: 0,
        };
        for (at, statement) in body.iter().enumerate() {
            let Statement::Instruction(what) = statement else { continue };
            if !flow.reached[flow.block_of[at]] {
                continue;
            }
            if is_block_barrier(what) && uniform.instruction(what, flow.block_of[at]) {
                this.block_barriers.insert(at);
            } else if is_store(what) {
                let is_shared =
                    what.modifiers.space == Some(Space::Shared) || what.opcode == Opcode::CpAsync;
                this.stores.push(Store { at, is_shared, thread: None });
            }
        }
        this.find_threads(module, entry);
        this
    }

    /// Finds the blocks and the stores that only one thread executes.
    fn find_threads(&mut self, module: &Module, entry: &Entry) {
        let (function, flow, uniform) = (self.function, self.flow, self.uniform);
        let body = function.body.as_deref().unwrap_or_default();
        let Some(regions) = Regions::of(function, flow, uniform) else { return };
        let sums = LinearSums::of(module, entry, function, flow, uniform);
        let forms = AddressForms::of(function, flow, &sums, uniform, &regions.in_loop);
        if forms.dimensions != [false; 2] {
            return;
        }
        let branches = BranchConditions::of(function, flow, &sums, uniform, &forms);
        let conditions: Vec<_> =
            (0..flow.blocks.len()).map(|block| branches.in_block(block)).collect();
        self.threads = conditions.iter().map(|conditions| conditions.range.only_thread()).collect();
        for store in &mut self.stores {
            if let Statement::Instruction(what) = &body[store.at] {
                let conditions = &conditions[flow.block_of[store.at]];
                store.thread = branches.with(what, store.at, conditions).range.only_thread();
            }
        }
    }

    /// Whether another thread of the block may store the value that a loop waits for, while a
    /// thread is in the loop.
    pub(super) fn may_store(&mut self, wait: &WaitingLoop) -> bool {
        let is_behind = self.is_lock(wait) || self.leaves_together(wait);
        let starts: Vec<usize> =
            [0].into_iter().chain(self.block_barriers.iter().map(|barrier| barrier + 1)).collect();
        starts.into_iter().any(|start| self.reaches_loop_and_store(wait, start, is_behind))
    }

    /// Returns the instruction if its operands are the same for all threads of the block.
    fn uniform_instruction(&self, at: usize) -> Option<&Instruction> {
        let body = self.function.body.as_deref().unwrap_or_default();
        let Statement::Instruction(what) = &body[at] else { return None };
        let mut is_same = true;
        effects::read(what, &mut |id| is_same &= self.uniform.register(id));
        is_same.then_some(what)
    }

    /// Whether the loop takes a lock. The thread that holds the lock has passed the loop, and
    /// releases the lock before the next thread of the block runs.
    fn is_lock(&self, wait: &WaitingLoop) -> bool {
        wait.polls.iter().all(|at| self.uniform_instruction(*at).is_some_and(takes_turns))
    }

    /// Whether all threads of the block reach the loop together and leave it for the same value.
    fn leaves_together(&self, wait: &WaitingLoop) -> bool {
        if !wait
            .polls
            .iter()
            .all(|at| self.uniform_instruction(*at).is_some_and(|what| !takes_turns(what)))
        {
            return false;
        }
        let agreed = wait.polls.iter().copied().collect();
        Uniformity::of(self.function, self.flow, &HashSet::new(), agreed).block(wait.head)
    }

    /// Whether both the loop and a store of another thread can be reached from a statement without
    /// passing a barrier. With `is_behind`, stores behind the loop do not count.
    fn reaches_loop_and_store(
        &mut self,
        wait: &WaitingLoop,
        start: usize,
        is_behind: bool,
    ) -> bool {
        let mut seen = HashSet::new();
        let mut passed = HashSet::new();
        let mut has_loop = false;
        let mut stack = vec![start];
        while let Some(from) = stack.pop() {
            let Some(block) = self.flow.block_of.get(from).copied() else { continue };
            let range = &self.flow.blocks[block];
            has_loop |= block == wait.head && from == range.start;
            if block == wait.head && is_behind {
                continue;
            }
            self.steps += range.end - from;
            if self.steps > STEPS_MAX {
                return true;
            }
            let barrier = (from..range.end).find(|at| self.block_barriers.contains(at));
            passed.extend(from..barrier.unwrap_or(range.end));
            if barrier.is_none() {
                let next = range.successors.iter().filter(|next| **next != self.flow.exit());
                stack.extend(
                    next.filter(|next| seen.insert(**next))
                        .map(|next| self.flow.blocks[*next].start),
                );
            }
        }
        let thread = self.threads[wait.head];
        let is_other = |store: &Store| store.thread.is_none() || store.thread != thread;
        let counts = |store: &Store| (wait.is_generic || !store.is_shared) && is_other(store);
        has_loop && self.stores.iter().any(|store| passed.contains(&store.at) && counts(store))
    }
}

/// Whether an instruction is a barrier that waits for all threads of the block.
fn is_block_barrier(what: &Instruction) -> bool {
    match what.opcode {
        Opcode::BarSync => what.sources().len() < 2,
        Opcode::BarRed => what.sources().len() < 3,
        _ => false,
    }
}

/// Whether an instruction changes memory that other threads see.
fn is_store(what: &Instruction) -> bool {
    let is_store = match what.opcode {
        Opcode::Atom => !effects::keeps_word(what),
        Opcode::St | Opcode::Red | Opcode::CpAsync => true,
        _ => false,
    };
    is_store && !matches!(what.modifiers.space, Some(Space::Local | Space::Param | Space::Const))
}

/// Whether an instruction returns a different value to each thread: an atomic that changes the
/// word.
fn takes_turns(what: &Instruction) -> bool {
    what.opcode == Opcode::Atom && !effects::keeps_word(what)
}
