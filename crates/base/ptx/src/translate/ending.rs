//! Threads that have failed but cannot end, because other threads wait for them at a barrier.
//!
//! On a GPU a fault ends all threads. Here a failed thread ends, unless the kernel has barriers and
//! is not a state machine. Then the thread continues without touching memory, and leaves every loop
//! that has no barrier. If addresses are checked, all threads leave these loops as soon as one has
//! failed, because the value that they wait for may never come. They leave loops with barriers
//! together (`turns.rs`).

use std::collections::{HashMap, HashSet};

use super::flow::ControlFlow;
use super::turns::meets;
use super::uniform::Uniformity;
use crate::ir::{CallTarget, Function, Module, Opcode, Operand, Statement};

/// Largest number of blocks that the analysis visits for all loops of a kernel. Beyond it, threads
/// do not leave loops. No compiler nests that many loops.
const STEPS_MAX: usize = 4_000_000;

/// How a thread knows that it must not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// No thread fails, or a failed thread ends.
    Never,
    /// By the thread's own variable `dead`.
    OwnFlag,
    /// By the control block, which says that some thread has recorded a fault.
    AnyFault,
}

/// Whether a kernel can end early by `trap` or a failed assertion.
pub(super) fn has_traps(module: &Module, function: &Function) -> bool {
    function.body.iter().flatten().any(|statement| match statement {
        Statement::Instruction(what) => match what.call.as_deref().map(|call| &call.target) {
            Some(CallTarget::Direct(id)) => module.function(*id).name == "__assertfail",
            _ => what.opcode == Opcode::Trap,
        },
        Statement::Label(_) => false,
    })
}

/// Returns the block behind the loop that each branch closes, by the branch's statement.
pub(super) fn loop_exits(
    function: &Function,
    flow: &ControlFlow,
    uniform: &Uniformity,
) -> HashMap<usize, usize> {
    let body = function.body.as_deref().unwrap_or_default();
    let meets = meets(function, flow, uniform);
    let mut steps = 0;
    let mut exits = HashMap::new();
    for (latch, block) in flow.blocks.iter().enumerate().filter(|(latch, _)| flow.reached[*latch]) {
        let Some(at) = block.end.checked_sub(1) else { continue };
        let Some(Statement::Instruction(branch)) = body.get(at) else { continue };
        let [Operand::Label(label)] = branch.operands[..] else { continue };
        if branch.opcode != Opcode::Bra {
            continue;
        }
        let head = flow.block_of[function.labels[label.index()].position as usize];
        if flow.dominates(head, latch)
            && let Some(exit) = loop_exit(flow, head, latch, &meets, &mut steps)
        {
            exits.insert(at, exit);
        }
    }
    exits
}

/// Returns the first block behind a loop that all exits of the loop reach, if no barrier is on
/// these paths.
fn loop_exit(
    flow: &ControlFlow,
    head: usize,
    latch: usize,
    meets: &[bool],
    steps: &mut usize,
) -> Option<usize> {
    let mut inside = HashSet::from([head, latch]);
    let mut stack = if head == latch { Vec::new() } else { vec![latch] };
    while let Some(block) = stack.pop() {
        *steps += 1;
        stack.extend(
            flow.blocks[block].predecessors.iter().filter(|before| inside.insert(**before)),
        );
        if *steps > STEPS_MAX {
            return None;
        }
    }
    let mut exit = flow.postdominator(latch);
    while inside.contains(&exit) {
        exit = flow.postdominator(exit);
    }
    let mut seen = HashSet::from([latch]);
    let mut stack = vec![latch];
    while let Some(block) = stack.pop() {
        *steps += 1;
        if meets[block] || *steps > STEPS_MAX {
            return None;
        }
        let next = flow.blocks[block].successors.iter();
        stack.extend(
            next.filter(|next| **next != exit && **next != flow.exit() && seen.insert(**next)),
        );
    }
    Some(exit)
}
