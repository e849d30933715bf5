//! Threads that have failed but cannot end, because other threads wait for them at a barrier.
//!
//! On a GPU a fault ends all threads. Here a failed thread ends, unless the kernel has barriers and
//! is not a state machine. Then the thread continues without touching memory, and leaves every loop
//! that has no barrier. If addresses are checked, all threads leave their loops as soon as one has
//! failed, because the value that they wait for may never come.

use std::collections::{HashMap, HashSet};

use super::TranslateError;
use super::body::Writer;
use super::flow::{self, Flow};
use super::warp::is_meeting;
use crate::ir::{CallTarget, Function, Instruction, Module, Opcode, Operand, Space, Statement};

/// Largest number of blocks that the analysis visits for all loops of a kernel. Beyond it, threads
/// do not leave loops. No compiler nests that many loops.
const STEPS_MAX: usize = 4_000_000;

/// How a thread knows that it must not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// No thread fails, or a failed thread ends.
    Never,
    /// By the thread's own variable `dead`.
    Own,
    /// By the control block, which says that some thread has recorded a fault.
    Any,
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
pub(super) fn exits(function: &Function, flow: &Flow) -> HashMap<usize, usize> {
    let body = function.body.as_deref().unwrap_or_default();
    let meets: Vec<bool> = flow
        .blocks
        .iter()
        .map(|block| {
            body[block.start..block.end]
                .iter()
                .any(|statement| matches!(statement, Statement::Instruction(what) if is_meeting(what.opcode)))
        })
        .collect();
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
            && let Some(exit) = exit(flow, head, latch, &meets, &mut steps)
        {
            exits.insert(at, exit);
        }
    }
    exits
}

/// Returns the first block behind a loop that all exits of the loop reach, if no barrier is on
/// these paths.
fn exit(
    flow: &Flow,
    head: usize,
    latch: usize,
    meets: &[bool],
    steps: &mut usize,
) -> Option<usize> {
    let mut inside = HashSet::from([head, latch]);
    let mut stack = if head == latch { Vec::new() } else { vec![latch] };
    while let Some(block) = stack.pop() {
        *steps += 1;
        stack.extend(flow.blocks[block].before.iter().filter(|before| inside.insert(**before)));
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
        let next = flow.blocks[block].next.iter();
        stack.extend(
            next.filter(|next| **next != exit && **next != flow.exit() && seen.insert(**next)),
        );
    }
    Some(exit)
}

impl Writer<'_> {
    /// Before a branch that closes a loop, makes a thread leave the loop if the thread must not
    /// continue.
    pub(super) fn leave_loop(&mut self, branch: &Instruction) {
        let test = match self.failing {
            Failing::Never => return,
            Failing::Own => "dead",
            Failing::Any => "*(volatile __global const uint *)AT(control) != 0u",
        };
        let goes = if self.has_meetings && !self.is_machine {
            match self.exits.get(&self.at) {
                Some(exit) if *exit == self.flow.exit() => String::from("goto END;"),
                Some(exit) => format!("goto X{exit};"),
                None => return,
            }
        } else {
            let position =
                |label: &crate::ir::LabelId| self.function.labels[label.index()].position as usize;
            let goes_back = branch.operands.iter().any(|operand| match operand {
                Operand::Label(label) => position(label) <= self.at,
                Operand::Targets(labels) => labels.iter().any(|label| position(label) <= self.at),
                _ => false,
            });
            if !goes_back {
                return;
            }
            self.leaving()
        };
        self.line(&format!("if ({test}) {{ {goes} }}"));
    }

    /// Whether a failed thread must skip an instruction. It does not skip loads that all threads
    /// execute together: barriers may depend on them, and the other threads load the same value.
    pub(super) fn is_dangerous(&self, what: &Instruction) -> bool {
        if self.failing != Failing::Own {
            return false;
        }
        match what.opcode {
            Opcode::St
            | Opcode::Sust
            | Opcode::Atom
            | Opcode::Red
            | Opcode::CpAsync
            | Opcode::Call => true,
            Opcode::Ld | Opcode::Ldu | Opcode::Tex | Opcode::Tld4 | Opcode::Txq | Opcode::Suld => {
                let mut uniform = self.uniform.instruction(what, self.flow.block_of[self.at]);
                flow::written(what, &mut |id| uniform &= self.uniform.register(id));
                what.modifiers.space != Some(Space::Param) && !uniform
            }
            _ => false,
        }
    }

    /// Writes one instruction, which a failed thread skips if it is dangerous.
    pub(super) fn unless_failed(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let is_dangerous = self.is_dangerous(what);
        if is_dangerous {
            self.line("if (!dead) {");
        }
        self.instruction(what)?;
        if is_dangerous {
            self.line("}");
        }
        Ok(())
    }
}
