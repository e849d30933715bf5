//! Half precision, `bf16` and pairs of them: computed in single precision and rounded once.

use super::c_type::value_type;
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{BoolOp, Compare, Instruction, Kind, Opcode, Rounding, Type};

impl Writer<'_> {
    pub(super) fn half(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        match what.opcode {
            Opcode::Setp | Opcode::Set => return self.compare_halves(what),
            Opcode::Selp => return self.select(what),
            Opcode::Slct => return self.select_sign(what),
            _ => {}
        }
        let ty = what.ty();
        if !matches!(what.modifiers.rounding, None | Some(Rounding::Rn)) {
            return Err(TranslateError::rounding(what));
        }
        // Mixed operands (`fma.rn.f32.f16`) are not supported.
        if what.types.len() > 1 || what.modifiers.xorsign || what.modifiers.abs {
            return Err(TranslateError::unsupported(what));
        }
        let prefix = if matches!(ty, Type::F16 | Type::F16x2) { "half" } else { "bf16" };
        let (name, count) = match what.opcode {
            Opcode::Add => ("add", 2),
            Opcode::Sub => ("sub", 2),
            Opcode::Mul => ("mul", 2),
            Opcode::Fma => ("fma", 3),
            Opcode::Neg => ("neg", 1),
            Opcode::Abs => ("abs", 1),
            Opcode::Min if what.modifiers.nan => ("min_nan", 2),
            Opcode::Max if what.modifiers.nan => ("max_nan", 2),
            Opcode::Min => ("min", 2),
            Opcode::Max => ("max", 2),
            Opcode::Ex2 => ("ex2", 1),
            Opcode::Tanh => ("tanh", 1),
            _ => return Err(TranslateError::unsupported(what)),
        };
        let relu = if what.modifiers.relu { format!("ps_relu_{prefix}") } else { String::new() };
        let sat = if what.modifiers.sat { format!("ps_sat_{prefix}") } else { String::new() };
        let one = |arguments: &[String]| {
            format!("{relu}({sat}(ps_{prefix}_{name}({})))", arguments.join(", "))
        };
        if ty.kind() == Kind::FloatPair {
            let from = self.sources(what, Type::U32, count)?;
            let low: Vec<String> = from.iter().map(|text| format!("(ushort){text}")).collect();
            let high: Vec<String> =
                from.iter().map(|text| format!("(ushort)({text} >> 16)")).collect();
            return self.result(
                what,
                Type::U32,
                &format!("((uint){} | (uint){} << 16)", one(&low), one(&high)),
            );
        }
        let from = self.sources(what, ty, count)?;
        self.result(what, ty, &one(&from))
    }

    fn compare_halves(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.source_type();
        let to_float = if matches!(ty, Type::F16 | Type::F16x2) {
            "ps_half_to_float"
        } else {
            "ps_bf16_to_float"
        };
        let Some(compare) = what.modifiers.compare else {
            return Err(TranslateError::unsupported(what));
        };
        let outcome = |a: &str, b: &str| comparison(compare, to_float, a, b);
        if ty.kind() != Kind::FloatPair {
            let from = self.sources(what, ty, 2)?;
            let one = match what.ty() {
                Type::F16 => Some("0x3c00u"),
                Type::Bf16 => Some("0x3f80u"),
                Type::U16 | Type::S16 => Some("0xffffu"),
                _ => None,
            };
            if let (Opcode::Set, Some(one)) = (what.opcode, one) {
                let outcome = self.with_predicate(what, outcome(&from[0], &from[1]))?;
                return self.result(
                    what,
                    Type::F16,
                    &format!("({outcome} ? (ushort){one} : (ushort)0u)"),
                );
            }
            return self.compared(what, &outcome(&from[0], &from[1]));
        }
        self.compare_pairs(what, &outcome)
    }

    /// Compares two pairs of halves. `outcome` returns the comparison of one half of each.
    fn compare_pairs(
        &mut self,
        what: &Instruction,
        outcome: &dyn Fn(&str, &str) -> String,
    ) -> Result<(), TranslateError> {
        let from = self.sources(what, Type::U32, 2)?;
        let low = self.with_predicate(what, outcome(&from[0], &from[1]))?;
        let high = outcome(&format!("{} >> 16", from[0]), &format!("{} >> 16", from[1]));
        let high = self.with_predicate(what, high)?;
        if what.opcode == Opcode::Setp {
            self.line(&format!("{{ const bool x = {low}, y = {high};"));
            self.write(what, &what.operands[0], Type::Pred, "x")?;
            if what.destinations > 1 {
                self.write(what, &what.operands[1], Type::Pred, "y")?;
            }
            self.line("}");
            return Ok(());
        }
        let (one, shift) = match what.ty() {
            Type::F16x2 => ("0x3c00u", ""),
            Type::Bf16x2 => ("0x3f80u", ""),
            other if other.bits() == 32 && value_type(other) == "uint" => ("0xffffu", ""),
            _ => return Err(TranslateError::unsupported(what)),
        };
        self.result(
            what,
            Type::U32,
            &format!("(({low} ? {one} : 0u) | ({high} ? {one} : 0u) << 16){shift}"),
        )
    }

    /// Combines a comparison with the predicate that the instruction may have.
    fn with_predicate(
        &mut self,
        what: &Instruction,
        outcome: String,
    ) -> Result<String, TranslateError> {
        let Some(operator) = what.modifiers.bool_op else { return Ok(outcome) };
        let third =
            what.sources().get(2).ok_or_else(|| TranslateError::operand(what, what.sources()))?;
        let third = self.read(what, third, Type::Pred)?;
        Ok(match operator {
            BoolOp::And => format!("({outcome} && {third})"),
            BoolOp::Or => format!("({outcome} || {third})"),
            BoolOp::Xor => format!("(({outcome}) != {third})"),
        })
    }
}

/// Returns the comparison of two halves, which the function `to_float` converts.
fn comparison(compare: Compare, to_float: &str, a: &str, b: &str) -> String {
    let (a, b) = (format!("{to_float}((ushort)({a}))"), format!("{to_float}((ushort)({b}))"));
    match compare {
        Compare::Eq => format!("({a} == {b})"),
        Compare::Ne => format!("({a} < {b} || {a} > {b})"),
        Compare::Lt => format!("({a} < {b})"),
        Compare::Le => format!("({a} <= {b})"),
        Compare::Gt => format!("({a} > {b})"),
        Compare::Ge => format!("({a} >= {b})"),
        Compare::Equ => format!("!({a} < {b} || {a} > {b})"),
        Compare::Neu => format!("({a} != {b})"),
        Compare::Ltu => format!("!({a} >= {b})"),
        Compare::Leu => format!("!({a} > {b})"),
        Compare::Gtu => format!("!({a} <= {b})"),
        Compare::Geu => format!("!({a} < {b})"),
        Compare::Num => format!("({a} == {a} && {b} == {b})"),
        _ => format!("({a} != {a} || {b} != {b})"),
    }
}
