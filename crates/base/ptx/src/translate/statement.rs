//! One instruction: its guard, the family of instructions that writes it, and the counters that it
//! changes.

use super::effects;
use super::ending::Failing;
use super::error::TranslateError;
use super::writer::{TextLine, Writer};
use crate::ir::{Instruction, Kind, Opcode, Space, Type};

impl Writer<'_> {
    /// Writes one instruction with its guard.
    pub(super) fn guarded(&mut self, instruction: &Instruction) -> Result<(), TranslateError> {
        let from = self.lines.len();
        if let Some(guard) = instruction.guard {
            let condition = self.condition(guard);
            self.line(&format!("if ({condition}) {{"));
        }
        self.unless_failed(instruction)?;
        if self.uniform.agreed.contains(&self.at) {
            self.broadcast(instruction)?;
        }
        if instruction.guard.is_some() {
            // A barrier in a branch: see `closing.rs`.
            let meets = effects::is_meeting(instruction.opcode) && !self.is_machine;
            if meets || self.uniform.agreed.contains(&self.at) {
                self.line("ps_close();");
            }
            self.line("}");
        } else if self.lines[from..].iter().any(|line| line.text.starts_with("const ")) {
            // The C variables belong to this statement only.
            self.lines.insert(from, TextLine { step: None, text: String::from("{") });
            self.line("}");
        }
        self.count_steps();
        Ok(())
    }

    /// Updates the steps that the current statement changes.
    fn count_steps(&mut self) {
        let sums = self.sums;
        for &id in sums.changed_steps(self.at) {
            let Some(step) = sums.step(id) else { continue };
            if step.first == self.at {
                self.lines.push(TextLine { step: Some(id), text: format!("q{} = 0;", id.0) });
            }
            let at = self.at;
            for (_, add) in step.adds.iter().filter(|(place, _)| *place == at) {
                let text = self.divided(add, step.unit);
                self.lines.push(TextLine {
                    step: Some(id),
                    text: format!("q{} += (long)({text});", id.0),
                });
            }
        }
    }

    /// Writes one instruction, without its guard.
    fn instruction(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        if !self.options.fp64 && self.is_double(what) {
            return Err(TranslateError::DoublePrecision {
                instruction: what.mnemonic.to_string(),
                line: what.line,
            });
        }
        match what.opcode {
            Opcode::Bra => self.branch(what),
            Opcode::BrxIdx => self.switch(what),
            Opcode::Ret | Opcode::Exit => {
                self.leave();
                Ok(())
            }
            Opcode::Hint | Opcode::CpAsyncFence | Opcode::Brkpt => Ok(()),
            Opcode::Nanosleep => {
                let [duration] = &what.operands[..] else {
                    return Err(TranslateError::operand(what, &what.operands));
                };
                let duration = self.read(what, duration, Type::U32)?;
                self.line(&format!("ps_nanosleep({duration});"));
                Ok(())
            }
            Opcode::Ld
            | Opcode::Ldu
            | Opcode::St
            | Opcode::Cvta
            | Opcode::Isspacep
            | Opcode::CpAsync
            | Opcode::Mov
            | Opcode::Fence => self.memory(what),
            Opcode::Atom | Opcode::Red => self.atomic(what),
            Opcode::Cvt => self.convert(what),
            Opcode::Call | Opcode::Trap => self.call(what),
            Opcode::Tex | Opcode::Tld4 | Opcode::Txq | Opcode::Suld | Opcode::Sust => {
                self.texture(what)
            }
            opcode if effects::is_meeting(opcode) => self.meet_together(what),
            _ if what.types.iter().any(|ty| {
                matches!(ty.bits(), 16) && ty.is_float() || matches!(ty.kind(), Kind::FloatPair)
            }) =>
            {
                self.half(what)
            }
            _ if what.types.iter().any(|ty| ty.is_float()) || what.opcode == Opcode::Testp => {
                self.float(what)
            }
            _ => self.integer(what),
        }
    }

    fn is_double(&self, what: &Instruction) -> bool {
        !effects::keeps_bits(what.opcode) && what.types.contains(&Type::F64)
    }

    /// Whether a failed thread must skip an instruction. It does not skip loads that all threads
    /// execute together: barriers may depend on them, and the other threads load the same value.
    fn is_dangerous(&self, what: &Instruction) -> bool {
        if self.failing != Failing::OwnFlag {
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
                effects::written(what, &mut |id| uniform &= self.uniform.register(id));
                what.modifiers.space != Some(Space::Param) && !uniform
            }
            _ => false,
        }
    }

    /// Writes one instruction, which a failed thread skips if it is dangerous.
    fn unless_failed(&mut self, what: &Instruction) -> Result<(), TranslateError> {
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
