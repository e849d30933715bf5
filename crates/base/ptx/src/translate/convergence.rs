//! Decides whether the threads of a block reach each meeting together, or whether the kernel must
//! become a state machine.

use super::effects::is_meeting;
use super::flow::ControlFlow;
use super::paths;
use super::uniform::Uniformity;
use crate::ir::{Function, Instruction, Opcode, Operand, Statement};

/// Whether only some threads reach a meeting, or whether there are more paths through meetings than
/// a device's compiler can copy.
pub(super) fn needs_machine(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> bool {
    let body = function.body.as_deref().unwrap_or_default();
    let is_apart = body.iter().enumerate().any(|(index, statement)| {
        let Statement::Instruction(what) = statement else { return false };
        let block = flow.block_of[index];
        if !is_meeting(what.opcode) || !flow.reached[block] {
            return false;
        }
        what.opcode == Opcode::BarArrive || counts_some(what) || !uniform.instruction(what, block)
    });
    is_apart || paths::are_too_many(function, flow, uniform)
}

/// Whether an instruction counts the threads of a part of the block: `bar.red` with a number of
/// threads, or with a barrier that each warp may choose. For `bar.sync`, all threads may wait for
/// each other instead.
pub(super) fn counts_some(what: &Instruction) -> bool {
    what.opcode == Opcode::BarRed
        && (what.sources().len() > 2
            || !matches!(what.sources().first(), Some(Operand::Immediate(_))))
}
