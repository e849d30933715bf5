//! What one instruction does: the registers that it reads and writes, the memory that it accesses,
//! and whether threads wait for each other there.

use crate::ir::{
    Address, Atomic, Base, Cache, Function, Immediate, Instruction, Modifiers, Opcode, Operand,
    RegisterId, Semantics, Statement,
};

/// Calls `each` with every register that an instruction writes.
pub(super) fn written(instruction: &Instruction, each: &mut dyn FnMut(RegisterId)) {
    for operand in &instruction.operands[..usize::from(instruction.destinations)] {
        registers_of(operand, each);
    }
    if let Some(call) = &instruction.call {
        call.returns.iter().for_each(|operand| registers_of(operand, each));
    }
}

/// Calls `each` with every register that an operand names.
pub(super) fn registers_of(operand: &Operand, each: &mut dyn FnMut(RegisterId)) {
    match operand {
        Operand::Register(id) | Operand::Not(id) | Operand::Component(id, _) => each(*id),
        Operand::Vector(parts) => parts.iter().for_each(|part| registers_of(part, each)),
        Operand::Address(Address { base: Base::Register(id), .. }) => each(*id),
        Operand::Texture(address) => {
            registers_of(&address.texture, each);
            address.sampler.iter().for_each(|sampler| registers_of(sampler, each));
            address
                .coordinates
                .iter()
                .chain(&address.extra)
                .for_each(|part| registers_of(part, each));
        }
        _ => {}
    }
}

/// Calls `each` with every register that an instruction reads.
pub(super) fn read(instruction: &Instruction, each: &mut dyn FnMut(RegisterId)) {
    instruction.sources().iter().for_each(|operand| registers_of(operand, each));
    // An instruction reads the registers of an address, even if the address is a destination.
    for operand in &instruction.operands[..usize::from(instruction.destinations)] {
        if matches!(operand, Operand::Address(_) | Operand::Texture(_)) {
            registers_of(operand, each);
        }
    }
    if let Some(guard) = instruction.guard {
        each(guard.register);
    }
}

/// Returns the address operand of an access, and its size in bytes.
pub(super) fn accessed(what: &Instruction) -> Option<(&Address, u32)> {
    let lanes = u32::from(what.modifiers.vector.max(1));
    let bytes = what.ty().bytes() * lanes;
    what.operands.iter().find_map(|operand| match operand {
        Operand::Address(address) => Some((address, bytes)),
        _ => None,
    })
}

/// Whether an atomic leaves the word unchanged: programs read a word by adding 0 to it.
pub(super) fn keeps_word(what: &Instruction) -> bool {
    matches!(what.modifiers.atomic, Some(Atomic::Add | Atomic::Or | Atomic::Xor))
        && matches!(what.sources().get(1), Some(Operand::Immediate(Immediate::Integer(0))))
}

/// Whether threads wait for each other at an instruction.
pub(super) fn is_meeting(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Shfl
            | Opcode::Vote
            | Opcode::Match
            | Opcode::Activemask
            | Opcode::Redux
            | Opcode::Elect
            | Opcode::BarSync
            | Opcode::BarRed
            | Opcode::BarArrive
            | Opcode::BarWarpSync
    )
}

/// Whether the kernel has any meeting.
pub(super) fn has_meetings(function: &Function) -> bool {
    let body = function.body.as_deref().unwrap_or_default();
    body.iter().any(
        |statement| matches!(statement, Statement::Instruction(what) if is_meeting(what.opcode)),
    )
}

/// Whether other threads may change or see the memory meanwhile, so that each access must happen: a
/// thread may wait in a loop of such accesses.
pub(super) fn is_strong(modifiers: &Modifiers) -> bool {
    modifiers.volatile
        || modifiers.cache == Some(Cache::Cv)
        || modifiers.semantics.is_some_and(|semantics| semantics != Semantics::Weak)
}

/// Whether an instruction moves bits without looking at them.
pub(super) const fn keeps_bits(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Ld | Opcode::Ldu | Opcode::St | Opcode::Mov)
}
