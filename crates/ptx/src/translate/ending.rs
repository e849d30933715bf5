//! Threads that have failed, and cannot end because others wait for them at a barrier.
//!
//! On a GPU a fault ends all threads. Here a thread that fails ends, unless the kernel has barriers and is no state machine: then it goes on, but
//! touches no memory any more, and leaves every loop that has no barrier. Where addresses are checked, all threads leave their loops
//! as soon as one has failed: what they would wait for may never come.

use std::collections::{HashMap, HashSet};

use super::TranslateError;
use super::body::Writer;
use super::flow::{self, Flow};
use super::warp::is_meeting;
use crate::ir::{CallTarget, Function, Instruction, Module, Opcode, Operand, Space, Statement};

/// Blocks that are looked at for all loops of a kernel. Beyond that loops are not left: only what nobody compiles has that many nested ones.
const STEPS_MAX: usize = 4_000_000;

/// How it is known that a thread must not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// Nothing fails, or what fails ends.
    Never,
    /// The thread's own variable `dead`.
    Own,
    /// The control block: some thread has left a fault.
    Any,
}

/// Whether a kernel can end early by its own will.
pub(super) fn has_traps(module: &Module, function: &Function) -> bool {
    function.body.iter().flatten().any(|statement| match statement {
        Statement::Instruction(what) => match what.call.as_deref().map(|call| &call.target) {
            Some(CallTarget::Direct(id)) => module.function(*id).name == "__assertfail",
            _ => what.opcode == Opcode::Trap,
        },
        Statement::Label(_) => false,
    })
}

/// Where a thread goes that leaves the loop which a branch closes: the block, by the branch's statement.
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

/// The first block behind a loop that all ways out of it come to, if there is no barrier on these ways.
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
    /// Before a branch: a thread that must not go on leaves the loop that the branch closes.
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

    /// Whether an instruction must not happen any more in a thread that has failed. What all threads load together is left: barriers
    /// may depend on it, and others load it too.
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

    /// One instruction, unless the thread has failed.
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
