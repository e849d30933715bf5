//! What the branches in front of an access reveal about the numbers of the threads that execute it.

use super::address_form::{AddressForms, Variation};
use super::flow::ControlFlow;
use super::linear::LinearSums;
use super::uniform::Uniformity;
use crate::ir::{
    Compare, Function, Guard, Immediate, Instruction, Opcode, Operand, RegisterId, Statement,
};

/// Largest product of branches and blocks that the analysis handles. Beyond it, nothing is known
/// about the threads, which only costs speed.
const STEPS_MAX: usize = 4_000_000;

/// Largest depth of definitions that are followed to see whether a register is the same in a whole
/// warp.
const DEPTH_MAX: u32 = 8;

/// Numbers of the threads and of the lanes that may execute a statement, as half-open intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadRange {
    thread: (i64, i64),
    lane: (i64, i64),
}

impl ThreadRange {
    pub(super) const ALL: Self = Self { thread: (0, i64::MAX), lane: (0, i64::MAX) };

    /// Whether a thread with these numbers may execute the statement.
    pub(super) fn has(&self, thread: i64, lane: i64) -> bool {
        (self.thread.0..self.thread.1).contains(&thread)
            && (self.lane.0..self.lane.1).contains(&lane)
    }

    /// Returns the number of the thread, if only one thread may execute the statement.
    pub(super) fn only_thread(&self) -> Option<i64> {
        (self.thread.0.checked_add(1) == Some(self.thread.1)).then_some(self.thread.0)
    }
}

/// Knowledge about the threads that execute a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThreadConditions {
    pub range: ThreadRange,
    /// Registers that are larger than the thread's number.
    pub below: Vec<RegisterId>,
    /// Registers with which the thread's number is compared in any other way.
    pub against: Vec<RegisterId>,
    /// Whether a condition that the analysis does not understand also chooses the threads.
    pub others: bool,
}

impl Default for ThreadConditions {
    fn default() -> Self {
        Self { range: ThreadRange::ALL, below: Vec::new(), against: Vec::new(), others: false }
    }
}

/// A branch at the end of a block that may separate lanes.
struct SeparatingBranch {
    block: usize,
    guard: Guard,
    /// The block that follows if the guard is true.
    taken: usize,
    /// The block that follows if the guard is false.
    other: usize,
}

/// The branches of a kernel that may separate lanes.
pub(super) struct BranchConditions<'a> {
    pub function: &'a Function,
    pub flow: &'a ControlFlow,
    pub sums: &'a LinearSums<'a>,
    pub uniform: &'a Uniformity,
    pub forms: &'a AddressForms<'a>,
    branches: Vec<SeparatingBranch>,
}

impl<'a> BranchConditions<'a> {
    pub(super) fn of(
        function: &'a Function,
        flow: &'a ControlFlow,
        sums: &'a LinearSums<'a>,
        uniform: &'a Uniformity,
        forms: &'a AddressForms<'a>,
    ) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut branches = Vec::new();
        for (block, range) in
            flow.blocks.iter().enumerate().filter(|(block, _)| flow.reached[*block])
        {
            let Some(Statement::Instruction(last)) = body[range.start..range.end].last() else {
                continue;
            };
            let (Opcode::Bra, Some(guard), [Operand::Label(label)]) =
                (last.opcode, last.guard, &last.operands[..])
            else {
                continue;
            };
            let taken = flow.block_of[function.labels[label.index()].position as usize];
            if !uniform.register(guard.register) && taken != block + 1 {
                branches.push(SeparatingBranch { block, guard, taken, other: block + 1 });
            }
        }
        Self { function, flow, sums, uniform, forms, branches }
    }

    /// Returns what is true for all threads in a block.
    pub(super) fn in_block(&self, block: usize) -> ThreadConditions {
        let mut conditions = ThreadConditions::default();
        if self.branches.len() * self.flow.blocks.len() > STEPS_MAX {
            conditions.others = true;
            return conditions;
        }
        for SeparatingBranch { block: branch, guard, taken, other } in &self.branches {
            // A block that all threads reach in the end says nothing about them.
            if self.flow.postdominates(block, *branch) {
                continue;
            }
            let leads = |to: usize| {
                to < self.flow.blocks.len()
                    && self.flow.blocks[to].predecessors.len() == 1
                    && self.flow.dominates(to, block)
            };
            let end = self.flow.blocks[*branch].end - 1;
            if leads(*taken) {
                self.holds(*guard, false, end, &mut conditions);
            } else if leads(*other) {
                self.holds(*guard, true, end, &mut conditions);
            }
            // Otherwise the branch ends a loop, which all threads may have entered.
        }
        conditions
    }

    /// Adds the condition of an instruction's own guard.
    pub(super) fn with(
        &self,
        what: &Instruction,
        at: usize,
        conditions: &ThreadConditions,
    ) -> ThreadConditions {
        let mut conditions = conditions.clone();
        if let Some(guard) = what.guard.filter(|guard| !self.uniform.register(guard.register)) {
            self.holds(guard, false, at, &mut conditions);
        }
        conditions
    }

    /// Records that the guard of statement `at` is true, or false with `fails`.
    fn holds(&self, guard: Guard, fails: bool, at: usize, conditions: &mut ThreadConditions) {
        if self.compares(guard, fails, at, conditions).is_none() {
            conditions.others = true;
        }
    }

    fn compares(
        &self,
        guard: Guard,
        fails: bool,
        at: usize,
        conditions: &mut ThreadConditions,
    ) -> Option<()> {
        let body = self.function.body.as_deref()?;
        let [definition] = self.sums.definitions(guard.register)[..] else { return None };
        let Statement::Instruction(what) = body.get(definition)? else { return None };
        let [left, right] = what.sources() else { return None };
        if what.opcode != Opcode::Setp || what.guard.is_some() || what.ty().is_float() {
            return None;
        }
        let second = what.destinations > 1
            && what.operands.get(1) == Some(&Operand::Register(guard.register));
        let negated = guard.negated ^ fails ^ second;
        let signed = what.ty().is_signed();
        let mut compare = plain(what.modifiers.compare?)?;
        if negated {
            compare = opposite(compare);
        }
        let thread = |operand: &Operand| match operand {
            Operand::Register(id) => {
                self.forms.thread_plus(*id, at).filter(|(_, more)| *more == 0 || signed)
            }
            _ => None,
        };
        let (thread, bound) = match (thread(left), thread(right)) {
            (Some(thread), _) => (thread, right),
            (None, Some(thread)) => {
                compare = mirrored(compare);
                (thread, left)
            }
            _ => return None,
        };
        match bound {
            Operand::Immediate(Immediate::Integer(number)) => {
                let number = number.cast_signed();
                let number =
                    if what.ty().bits() == 32 && signed { number << 32 >> 32 } else { number };
                limit(&mut conditions.range, thread.0, compare, number.wrapping_sub(thread.1));
                Some(())
            }
            Operand::Register(id) if self.forms.variation(*id, DEPTH_MAX) == Variation::Uniform => {
                let list = if compare == Compare::Lt && thread.1 == 0 {
                    &mut conditions.below
                } else {
                    &mut conditions.against
                };
                list.push(*id);
                Some(())
            }
            _ => None,
        }
    }
}

/// Returns a comparison without its distinction of signed and unsigned numbers.
const fn plain(compare: Compare) -> Option<Compare> {
    Some(match compare {
        Compare::Lt | Compare::Lo => Compare::Lt,
        Compare::Le | Compare::Ls => Compare::Le,
        Compare::Gt | Compare::Hi => Compare::Gt,
        Compare::Ge | Compare::Hs => Compare::Ge,
        Compare::Eq => Compare::Eq,
        Compare::Ne => Compare::Ne,
        _ => return None,
    })
}

/// Returns the negation of a comparison.
const fn opposite(compare: Compare) -> Compare {
    match compare {
        Compare::Lt => Compare::Ge,
        Compare::Le => Compare::Gt,
        Compare::Gt => Compare::Le,
        Compare::Ge => Compare::Lt,
        Compare::Eq => Compare::Ne,
        _ => Compare::Eq,
    }
}

/// Returns the comparison with its sides exchanged.
const fn mirrored(compare: Compare) -> Compare {
    match compare {
        Compare::Lt => Compare::Gt,
        Compare::Le => Compare::Ge,
        Compare::Gt => Compare::Lt,
        Compare::Ge => Compare::Le,
        other => other,
    }
}

/// Narrows a range by a comparison of the number of the thread, or of the lane, with `number`.
fn limit(range: &mut ThreadRange, is_thread: bool, compare: Compare, number: i64) {
    let (first, end) = if is_thread { &mut range.thread } else { &mut range.lane };
    match compare {
        Compare::Lt => *end = (*end).min(number),
        Compare::Le => *end = (*end).min(number.saturating_add(1)),
        Compare::Gt => *first = (*first).max(number.saturating_add(1)),
        Compare::Ge => *first = (*first).max(number),
        Compare::Eq => {
            *first = (*first).max(number);
            *end = (*end).min(number.saturating_add(1));
        }
        _ => {}
    }
}
