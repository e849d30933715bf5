//! Loops in which a thread does nothing but wait for a value in shared memory.
//!
//! Only other threads of the block can store it, and here they may run when this one stops. So it stops in each turn ([`Stop::Yield`]).

use std::collections::HashSet;

use super::flow::{self, Flow};
use super::warp::is_meeting;
use crate::ir::{
    Atomic, Cache, Function, Instruction, Opcode, Operand, RegisterId, Semantics, Space, Statement, Stop,
};

/// Statements of a loop that does nothing but wait. Compilers write some ten; a loop that is longer does something.
const STATEMENTS_MAX: usize = 64;

/// The branches that close such loops.
pub(super) fn yields(function: &Function, flow: &Flow, stops: &[(usize, Stop)]) -> Vec<(usize, Stop)> {
    let body = function.body.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    for (latch, block) in flow.blocks.iter().enumerate().filter(|(latch, _)| flow.reached[*latch]) {
        let at = block.end - 1;
        let Some(Statement::Instruction(branch)) = body.get(at) else { continue };
        let (Opcode::Bra, [Operand::Label(label)]) = (branch.opcode, &branch.operands[..]) else { continue };
        let head = flow.block_of[function.labels[label.index()].position as usize];
        if flow.dominates(head, latch) && waits(body, flow, head, latch, stops) {
            found.push((at, Stop::Yield));
        }
    }
    found
}

/// Whether the loop between two blocks only waits.
fn waits(body: &[Statement], flow: &Flow, head: usize, latch: usize, stops: &[(usize, Stop)]) -> bool {
    let mut inside = HashSet::from([head, latch]);
    let mut stack = if head == latch { Vec::new() } else { vec![latch] };
    let mut statements = 0;
    let mut asks = false;
    while let Some(block) = stack.pop() {
        stack.extend(flow.blocks[block].before.iter().filter(|before| inside.insert(**before)));
        if inside.len() > STATEMENTS_MAX {
            return false;
        }
    }
    // What a loop changes itself is no value that it waits for: a compare-and-swap that takes what it found last is done in some turns.
    let mut changed = HashSet::new();
    for block in &inside {
        for statement in &body[flow.blocks[*block].start..flow.blocks[*block].end] {
            if let Statement::Instruction(what) = statement {
                flow::written(what, &mut |id| {
                    changed.insert(id);
                });
            }
        }
    }
    for block in inside {
        let range = flow.blocks[block].start..flow.blocks[block].end;
        statements += range.len();
        if statements > STATEMENTS_MAX || stops.iter().any(|(at, _)| range.contains(at)) {
            return false;
        }
        for statement in &body[range] {
            let Statement::Instruction(what) = statement else { continue };
            if does_something(what) {
                return false;
            }
            asks |= is_question(what) && !takes(what, &changed);
        }
    }
    asks
}

/// Whether an atomic takes a value that the loop makes.
fn takes(what: &Instruction, changed: &HashSet<RegisterId>) -> bool {
    let mut takes = false;
    if what.opcode == Opcode::Atom {
        for operand in what.sources() {
            flow::registers_of(operand, &mut |id| takes |= changed.contains(&id));
        }
    }
    takes
}

/// Whether an instruction looks for a value that another thread of the block stores.
fn is_question(what: &Instruction) -> bool {
    let modifiers = &what.modifiers;
    let is_strong = modifiers.volatile
        || modifiers.cache == Some(Cache::Cv)
        || modifiers.semantics.is_some_and(|semantics| semantics != Semantics::Weak);
    modifiers.space == Some(Space::Shared)
        && (what.opcode == Opcode::Ld && is_strong || what.opcode == Opcode::Atom)
}

/// Whether an instruction does more than to look.
fn does_something(what: &Instruction) -> bool {
    match what.opcode {
        Opcode::Atom => {
            !matches!(what.modifiers.atomic, Some(Atomic::Cas | Atomic::Exch | Atomic::Or | Atomic::And))
        }
        Opcode::St | Opcode::Red | Opcode::Call | Opcode::Trap | Opcode::CpAsync | Opcode::Sust => true,
        opcode => is_meeting(opcode),
    }
}
