//! Loops with barriers whose end may depend on memory.
//!
//! If addresses are checked, a refused access gives zeros, and a thread whose access was refused
//! stores nothing. On a GPU the fault ends all threads. Here a loop with a barrier may wait for a
//! value that never comes. The threads of a state machine leave each loop as soon as one of them
//! has failed (`ending`), so a kernel with such a loop becomes one. A loop that counts its turns
//! ends by itself.

use std::collections::HashSet;

use super::effects::{self, is_meeting};
use super::flow::ControlFlow;
use crate::ir::{Function, Instruction, Opcode, RegisterId, Space, Statement};

/// Largest number of steps that the searches of one kernel take. Beyond it, a loop counts as one
/// that may wait.
const STEPS_MAX: usize = 4_000_000;

/// Whether a kernel has a loop with a meeting that no branch ends after a number of turns that does
/// not depend on memory.
pub(super) fn may_depend_on_memory(function: &Function, flow: &ControlFlow) -> bool {
    let body = function.body.as_deref().unwrap_or_default();
    let mut writers = vec![Vec::new(); function.registers.len()];
    for (at, what) in instructions(body, 0..body.len()) {
        effects::written(what, &mut |id| writers[id.index()].push(at));
    }
    let mut search = Search { body, flow, writers, steps: 0 };
    let reached = flow.blocks.iter().enumerate().filter(|(block, _)| flow.reached[*block]);
    for (latch, block) in reached {
        for &head in block.successors.iter().filter(|head| flow.dominates(**head, latch)) {
            let inside = search.inside(head, latch);
            let meets = inside.iter().any(|block| search.meets(*block));
            if meets && !inside.iter().any(|block| search.counts(*block, latch, &inside)) {
                return true;
            }
        }
    }
    search.steps > STEPS_MAX
}

fn instructions(
    body: &[Statement],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, &Instruction)> {
    body[range.clone()].iter().zip(range).filter_map(|(statement, at)| match statement {
        Statement::Instruction(what) => Some((at, what)),
        Statement::Label(_) => None,
    })
}

struct Search<'a> {
    body: &'a [Statement],
    flow: &'a ControlFlow,
    /// The statements that write each register.
    writers: Vec<Vec<usize>>,
    steps: usize,
}

impl Search<'_> {
    /// Returns the blocks of a loop.
    fn inside(&mut self, head: usize, latch: usize) -> HashSet<usize> {
        let mut inside = HashSet::from([head, latch]);
        let mut stack = if head == latch { Vec::new() } else { vec![latch] };
        while let Some(block) = stack.pop().filter(|_| self.steps <= STEPS_MAX) {
            self.steps += 1;
            let before = self.flow.blocks[block].predecessors.iter();
            stack.extend(before.filter(|before| inside.insert(**before)));
        }
        inside
    }

    fn meets(&mut self, block: usize) -> bool {
        let range = self.flow.blocks[block].start..self.flow.blocks[block].end;
        self.steps += range.len();
        instructions(self.body, range).any(|(_, what)| is_meeting(what.opcode))
    }

    /// Whether each turn comes to a branch out of the loop at the end of a block, and its condition
    /// follows from values that each turn computes without memory.
    fn counts(&mut self, block: usize, latch: usize, inside: &HashSet<usize>) -> bool {
        let range = &self.flow.blocks[block];
        let leaves = range.successors.iter().any(|next| !inside.contains(next));
        let Some(Statement::Instruction(branch)) = self.body[range.start..range.end].last() else {
            return false;
        };
        let (true, true, Opcode::Bra, Some(guard)) =
            (leaves, self.flow.dominates(block, latch), branch.opcode, branch.guard)
        else {
            return false;
        };
        let mut seen: HashSet<RegisterId> = HashSet::from([guard.register]);
        let mut stack = vec![guard.register];
        while let Some(id) = stack.pop() {
            self.steps += self.writers[id.index()].len();
            for &at in &self.writers[id.index()] {
                let Statement::Instruction(what) = &self.body[at] else { continue };
                let block = self.flow.block_of[at];
                let sometimes = inside.contains(&block) && !self.flow.dominates(block, latch);
                if sometimes || takes_from_memory(what) || self.steps > STEPS_MAX {
                    return false;
                }
                effects::read(what, &mut |id| {
                    if seen.insert(id) {
                        stack.push(id);
                    }
                });
            }
        }
        true
    }
}

/// Whether the result of an instruction depends on memory or on other threads.
fn takes_from_memory(what: &Instruction) -> bool {
    match what.opcode {
        Opcode::Ld => what.modifiers.space != Some(Space::Param),
        Opcode::Ldu
        | Opcode::Atom
        | Opcode::Tex
        | Opcode::Tld4
        | Opcode::Txq
        | Opcode::Suld
        | Opcode::Call => true,
        opcode => is_meeting(opcode),
    }
}
