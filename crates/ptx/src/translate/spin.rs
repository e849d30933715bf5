//! Loops in which a thread does nothing but wait for a value in shared memory.
//!
//! Only other threads of the block can store it, and here they may run when this one stops. So it
//! stops in each turn ([`Stop::Yield`]).

use std::collections::HashSet;

use super::flow::{self, Flow};
use super::uniform;
use super::warp::is_meeting;
use crate::ir::{
    Atomic, Cache, Function, Instruction, Opcode, Operand, RegisterId, Semantics, Space, Statement, Stop,
};

/// Statements of a loop that does nothing but wait. Compilers write some ten; a loop that is longer
/// does something.
const STATEMENTS_MAX: usize = 64;

/// The branches that close such loops. With `all` also those of loops that wait for a value in
/// global memory, which may come from elsewhere.
pub(super) fn yields(function: &Function, flow: &Flow, all: bool) -> Vec<(usize, Stop)> {
    let body = function.body.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    for (latch, block) in flow.blocks.iter().enumerate().filter(|(latch, _)| flow.reached[*latch]) {
        let at = block.end - 1;
        let Some(Statement::Instruction(branch)) = body.get(at) else { continue };
        let (Opcode::Bra, [Operand::Label(label)]) = (branch.opcode, &branch.operands[..]) else { continue };
        let head = flow.block_of[function.labels[label.index()].position as usize];
        if !flow.dominates(head, latch) {
            continue;
        }
        if waits(body, flow, (head, latch), Space::Shared) {
            found.push((at, Stop::Yield));
        } else if all && waits(body, flow, (head, latch), Space::Global) {
            found.push((at, Stop::Pause));
        }
    }
    found
}

/// Whether the loop between two blocks only waits, for a value in this memory.
fn waits(body: &[Statement], flow: &Flow, (head, latch): (usize, usize), space: Space) -> bool {
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
    let found = found(body, flow, &inside);
    for block in inside {
        let range = flow.blocks[block].start..flow.blocks[block].end;
        statements += range.len();
        if statements > STATEMENTS_MAX {
            return false;
        }
        for statement in &body[range] {
            let Statement::Instruction(what) = statement else { continue };
            if does_something(what) {
                return false;
            }
            asks |= is_question(what, space) && !takes(what, &found);
        }
    }
    asks
}

/// The registers of a loop that depend on what it finds in memory.
fn found(body: &[Statement], flow: &Flow, inside: &HashSet<usize>) -> HashSet<RegisterId> {
    let instructions: Vec<&Instruction> = inside
        .iter()
        .flat_map(|block| &body[flow.blocks[*block].start..flow.blocks[*block].end])
        .filter_map(|statement| match statement {
            Statement::Instruction(what) => Some(what),
            Statement::Label(_) => None,
        })
        .take(STATEMENTS_MAX)
        .collect();
    let mut found = HashSet::new();
    let mut count = None;
    while count.replace(found.len()) != Some(found.len()) {
        for what in &instructions {
            let mut depends = matches!(what.opcode, Opcode::Ld | Opcode::Atom);
            uniform::read(what, &mut |id| depends |= found.contains(&id));
            if depends {
                flow::written(what, &mut |id| _ = found.insert(id));
            }
        }
    }
    found
}

/// Whether an atomic takes a value that the loop has found: such a compare-and-swap is done in some
/// turns, whatever others do.
fn takes(what: &Instruction, found: &HashSet<RegisterId>) -> bool {
    let mut takes = false;
    if what.opcode == Opcode::Atom {
        for operand in what.sources() {
            flow::registers_of(operand, &mut |id| takes |= found.contains(&id));
        }
    }
    takes
}

/// Whether an instruction looks for a value that another thread stores.
fn is_question(what: &Instruction, space: Space) -> bool {
    let modifiers = &what.modifiers;
    let is_strong = modifiers.volatile
        || modifiers.cache == Some(Cache::Cv)
        || modifiers.semantics.is_some_and(|semantics| semantics != Semantics::Weak);
    modifiers.space == Some(space) && (what.opcode == Opcode::Ld && is_strong || what.opcode == Opcode::Atom)
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
