//! Which values and which blocks are the same for all threads of a block of threads.
//!
//! A register is uniform when all threads that have it have the same value in it: then a branch on it takes all threads the same way. It is
//! divergent when it comes from the thread's number, from what other threads race for, or from a place where only some threads come by.
//! Memory without races gives all threads that read one address together the same value.

use super::flow::{self, Flow};
use crate::ir::{Address, Base};
use crate::ir::{Axis, Function, Instruction, Opcode, Operand, Semantics, Space, Special, Statement, Symbol};

/// What is uniform in a kernel.
#[derive(Debug)]
pub(super) struct Uniform {
    divergent: Vec<bool>,
    /// Blocks that some threads may pass, or pass more often, than others.
    scattered: Vec<bool>,
    /// How many instructions write each register; a guarded one counts twice, as it may leave the old value.
    writes: Vec<u32>,
}

impl Uniform {
    pub(super) fn of(function: &Function, flow: &Flow) -> Self {
        let mut this = Self {
            divergent: vec![false; function.registers.len()],
            scattered: vec![false; flow.blocks.len()],
            writes: vec![0; function.registers.len()],
        };
        let body = function.body.as_deref().unwrap_or_default();
        for statement in body {
            if let Statement::Instruction(instruction) = statement {
                let weight = if instruction.guard.is_some() { 2 } else { 1 };
                flow::written(instruction, &mut |id| this.writes[id.index()] += weight);
            }
        }
        while this.spread(body, flow) {}
        this
    }

    pub(super) fn register(&self, id: crate::ir::RegisterId) -> bool {
        !self.divergent[id.index()]
    }

    pub(super) fn written_once(&self, id: crate::ir::RegisterId) -> bool {
        self.writes[id.index()] == 1
    }

    /// Whether all threads come to this block together.
    pub(super) fn block(&self, block: usize) -> bool {
        !self.scattered[block]
    }

    /// One pass over everything; whether it found more that is divergent.
    fn spread(&mut self, body: &[Statement], flow: &Flow) -> bool {
        let mut changed = false;
        for (index, block) in flow.blocks.iter().enumerate().filter(|(index, _)| flow.reached[*index]) {
            let mut splits = self.scattered[index];
            for statement in &body[block.start..block.end] {
                let Statement::Instruction(instruction) = statement else { continue };
                changed |= self.instruction(instruction, index);
                splits |= block.next.len() > 1 && self.splits(instruction);
            }
            if splits && block.next.len() > 1 {
                changed |= flow.mark_dependents(index, &mut self.scattered);
            }
        }
        changed
    }

    /// Whether the branch goes different ways for different threads.
    fn splits(&self, instruction: &Instruction) -> bool {
        let guard = instruction.guard.is_some_and(|guard| self.divergent[guard.register.index()]);
        let index = instruction.opcode == Opcode::BrxIdx
            && instruction.sources().iter().any(|operand| self.operand(operand));
        guard || index
    }

    fn instruction(&mut self, instruction: &Instruction, block: usize) -> bool {
        let mut divergent =
            own_result(instruction) || instruction.sources().iter().any(|operand| self.operand(operand));
        if let Some(guard) = instruction.guard {
            divergent |= self.divergent[guard.register.index()];
        }
        let mut changed = false;
        let Self { divergent: marks, writes, scattered, .. } = self;
        flow::written(instruction, &mut |id| {
            if divergent || (scattered[block] && writes[id.index()] > 1) {
                changed |= !std::mem::replace(&mut marks[id.index()], true);
            }
        });
        changed
    }

    /// Whether an operand is divergent.
    fn operand(&self, operand: &Operand) -> bool {
        let mut divergent = false;
        flow::registers_of(operand, &mut |id| divergent |= self.divergent[id.index()]);
        divergent |= match operand {
            Operand::Special(special) => !special_is_uniform(*special),
            Operand::Vector(parts) => parts.iter().any(|part| self.operand(part)),
            Operand::Address(Address { base: Base::Symbol(Symbol::Variable(_)), .. }) => true,
            _ => false,
        };
        divergent
    }
}

/// Whether an instruction gives threads different results whatever its operands are.
fn own_result(instruction: &Instruction) -> bool {
    match instruction.opcode {
        Opcode::Atom
        | Opcode::Shfl
        | Opcode::Vote
        | Opcode::Match
        | Opcode::Activemask
        | Opcode::Redux
        | Opcode::Elect
        | Opcode::Call => true,
        // They read the carry flag, which is not looked at.
        Opcode::Addc | Opcode::Subc | Opcode::Madc => true,
        Opcode::Ld | Opcode::Ldu => {
            let modifiers = &instruction.modifiers;
            // A generic address may be one of local memory.
            let own = matches!(modifiers.space, Some(Space::Local | Space::Generic) | None);
            own || modifiers.volatile || !matches!(modifiers.semantics, None | Some(Semantics::Weak))
        }
        _ => false,
    }
}

pub(super) fn special_is_uniform(special: Special) -> bool {
    match special {
        Special::Tid(Axis::W) => true,
        Special::Tid(_)
        | Special::Laneid
        | Special::Warpid
        | Special::LanemaskEq
        | Special::LanemaskGe
        | Special::LanemaskGt
        | Special::LanemaskLe
        | Special::LanemaskLt
        | Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::Globaltimer
        | Special::GlobaltimerLo
        | Special::GlobaltimerHi => false,
        _ => true,
    }
}
