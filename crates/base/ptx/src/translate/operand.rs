//! Reads and writes operands, as C expressions of the right type.

use super::c_type::{converted, immediate, unsigned, value_type, widened};
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{Instruction, Operand, Type};

impl Writer<'_> {
    /// Returns the value of an operand, as an expression of [`value_type`].
    pub(super) fn read(
        &mut self,
        what: &Instruction,
        operand: &Operand,
        ty: Type,
    ) -> Result<String, TranslateError> {
        Ok(match operand {
            Operand::Register(id) => {
                let declared = &self.function.registers[id.index()];
                if declared.lanes != 1 {
                    return Err(TranslateError::operand(what, &declared.name));
                }
                converted(&self.name(*id), declared.ty, ty)
            }
            Operand::Component(id, lane) => converted(
                &format!("{}_{lane}", self.name(*id)),
                self.function.registers[id.index()].ty,
                ty,
            ),
            Operand::Not(id) => format!("(!{})", self.name(*id)),
            Operand::Immediate(number) => immediate(*number, ty),
            Operand::Special(special) => {
                let (value, own) = self.special(*special);
                converted(&value, own, ty)
            }
            Operand::Symbol { symbol, offset } => {
                let value = self.symbol_address(what, *symbol, *offset)?;
                format!("({}){value}", value_type(ty))
            }
            Operand::Vector(parts) => self.packed(what, parts, ty)?,
            other => return Err(TranslateError::operand(what, other)),
        })
    }

    /// Reads the source operands, all as the same type.
    pub(super) fn sources(
        &mut self,
        what: &Instruction,
        ty: Type,
        count: usize,
    ) -> Result<Vec<String>, TranslateError> {
        if what.sources().len() < count {
            return Err(TranslateError::operand(what, what.sources()));
        }
        what.sources()[..count].iter().map(|operand| self.read(what, operand, ty)).collect()
    }

    pub(super) fn destination<'i>(
        &self,
        what: &'i Instruction,
    ) -> Result<&'i Operand, TranslateError> {
        what.operands
            .first()
            .filter(|_| what.destinations > 0)
            .ok_or_else(|| TranslateError::operand(what, &what.operands))
    }

    /// Writes the first destination.
    pub(super) fn result(
        &mut self,
        what: &Instruction,
        ty: Type,
        value: &str,
    ) -> Result<(), TranslateError> {
        let destination = self.destination(what)?;
        self.write(what, destination, ty, value)
    }

    /// Returns `{a, b}` as one value, with the first element in the lowest bits.
    fn packed(
        &mut self,
        what: &Instruction,
        parts: &[Operand],
        ty: Type,
    ) -> Result<String, TranslateError> {
        if ty == Type::B128 && parts.len() == 2 {
            let (low, high) =
                (self.read(what, &parts[0], Type::U64)?, self.read(what, &parts[1], Type::U64)?);
            return Ok(format!("(ulong2)({low}, {high})"));
        }
        let (part, width) = part_of(what, parts, ty)?;
        let whole = unsigned(ty);
        let mut sum = Vec::with_capacity(parts.len());
        for (index, operand) in (0..).zip(parts) {
            if *operand != Operand::Sink {
                let value = self.read(what, operand, part)?;
                sum.push(format!("(({}){value} << {})", value_type(whole), index * width));
            }
        }
        Ok(converted(&format!("({})", sum.join(" | ")), whole, ty))
    }

    /// Writes the statement that assigns `value`, an expression of [`value_type`] of `ty`, to
    /// `operand`.
    pub(super) fn write(
        &mut self,
        what: &Instruction,
        operand: &Operand,
        ty: Type,
        value: &str,
    ) -> Result<(), TranslateError> {
        let (name, declared) = match operand {
            Operand::Register(id) if self.function.registers[id.index()].lanes == 1 => {
                (self.name(*id), self.function.registers[id.index()].ty)
            }
            Operand::Component(id, lane) => {
                (format!("{}_{lane}", self.name(*id)), self.function.registers[id.index()].ty)
            }
            Operand::Sink => {
                self.line(&format!("(void)({value});"));
                return Ok(());
            }
            Operand::Vector(parts) => return self.unpack(what, parts, ty, value),
            other => return Err(TranslateError::operand(what, other)),
        };
        let text = widened(value, ty, declared);
        self.line(&format!("{name} = {text};"));
        Ok(())
    }

    /// Splits one value into `{a, b}`, with the lowest bits in the first element.
    fn unpack(
        &mut self,
        what: &Instruction,
        parts: &[Operand],
        ty: Type,
        value: &str,
    ) -> Result<(), TranslateError> {
        if ty == Type::B128 && parts.len() == 2 {
            self.line(&format!("{{ ulong2 v = {value};"));
            self.write(what, &parts[0], Type::U64, "v.x")?;
            self.write(what, &parts[1], Type::U64, "v.y")?;
            self.line("}");
            return Ok(());
        }
        let (part, width) = part_of(what, parts, ty)?;
        let whole = unsigned(ty);
        self.line(&format!("{{ {} v = {};", value_type(whole), converted(value, ty, whole)));
        for (index, operand) in (0..).zip(parts) {
            if *operand != Operand::Sink {
                self.write(
                    what,
                    operand,
                    part,
                    &format!("({})(v >> {})", value_type(part), index * width),
                )?;
            }
        }
        self.line("}");
        Ok(())
    }
}

/// Returns the type of each of the equal parts of a value of type `ty`, and its number of bits.
fn part_of(what: &Instruction, parts: &[Operand], ty: Type) -> Result<(Type, u32), TranslateError> {
    let width = ty.bits() / u32::try_from(parts.len()).unwrap_or(1).max(1);
    let part = match width {
        8 => Type::U8,
        16 => Type::U16,
        32 => Type::U32,
        _ => return Err(TranslateError::operand(what, parts)),
    };
    Ok((part, width))
}
