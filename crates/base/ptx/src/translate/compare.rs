//! Comparisons and selections of integers and floating-point numbers.

use super::c_type::unsigned;
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{BoolOp, Compare, Instruction, Opcode, Type};

impl Writer<'_> {
    pub(super) fn select(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let from = self.sources(what, ty, 2)?;
        let third =
            what.sources().get(2).ok_or_else(|| TranslateError::operand(what, what.sources()))?;
        let which = self.read(what, third, Type::Pred)?;
        self.result(what, ty, &format!("({which} ? {} : {})", from[0], from[1]))
    }

    pub(super) fn select_sign(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let from = self.sources(what, ty, 2)?;
        let sign_type = what.source_type();
        let third =
            what.sources().get(2).ok_or_else(|| TranslateError::operand(what, what.sources()))?;
        let sign = self.read(what, third, sign_type)?;
        let zero = if sign_type == Type::F32 { "0.0f" } else { "0" };
        self.result(what, ty, &format!("({sign} >= {zero} ? {} : {})", from[0], from[1]))
    }

    pub(super) fn compare(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.source_type();
        if what.modifiers.compare.is_none() {
            return Err(TranslateError::unsupported(what));
        }
        let text = self.comparison(what, ty)?;
        self.compared(what, &text)
    }

    /// Returns the comparison of the first two sources.
    fn comparison(&mut self, what: &Instruction, ty: Type) -> Result<String, TranslateError> {
        use Compare::{
            Eq, Equ, Ge, Geu, Gt, Gtu, Hi, Hs, Le, Leu, Lo, Ls, Lt, Ltu, Nan, Ne, Neu, Num,
        };
        let compare = what.modifiers.compare.unwrap_or(Eq);
        let ty = if matches!(compare, Lo | Ls | Hi | Hs) { unsigned(ty) } else { ty };
        let from = self.sources(what, ty, 2)?;
        let (a, b) = (&from[0], &from[1]);
        let text = match compare {
            Eq => format!("{a} == {b}"),
            // In PTX unordered numbers do not compare as unequal; in C they do.
            Ne if ty.is_float() => format!("({a} < {b} || {a} > {b})"),
            Ne | Neu => format!("{a} != {b}"),
            Lt | Lo => format!("{a} < {b}"),
            Le | Ls => format!("{a} <= {b}"),
            Gt | Hi => format!("{a} > {b}"),
            Ge | Hs => format!("{a} >= {b}"),
            Equ => format!("!({a} < {b} || {a} > {b})"),
            Ltu => format!("!({a} >= {b})"),
            Leu => format!("!({a} > {b})"),
            Gtu => format!("!({a} <= {b})"),
            Geu => format!("!({a} < {b})"),
            Num => format!("({a} == {a} && {b} == {b})"),
            Nan => format!("({a} != {a} || {b} != {b})"),
        };
        Ok(format!("({text})"))
    }

    /// Writes the outcome of a comparison as `set` or `setp` require.
    pub(super) fn compared(
        &mut self,
        what: &Instruction,
        outcome: &str,
    ) -> Result<(), TranslateError> {
        let mut other = String::new();
        if let Some(operator) = what.modifiers.bool_op {
            let third = what
                .sources()
                .get(2)
                .ok_or_else(|| TranslateError::operand(what, what.sources()))?;
            let third = self.read(what, third, Type::Pred)?;
            other = match operator {
                BoolOp::And => format!(" && {third}"),
                BoolOp::Or => format!(" || {third}"),
                BoolOp::Xor => format!(" != {third}"),
            };
        }
        if what.opcode == Opcode::Set {
            let ty = what.ty();
            let (one, zero) = match ty {
                Type::F32 => ("1.0f", "0.0f"),
                _ if ty.bits() == 32 && !ty.is_float() => ("0xffffffffu", "0u"),
                _ => return Err(TranslateError::unsupported(what)),
            };
            let ty = if ty == Type::F32 { ty } else { Type::U32 };
            return self.result(what, ty, &format!("(({outcome}{other}) ? {one} : {zero})"));
        }
        if what.destinations < 2 {
            return self.result(what, Type::Pred, &format!("({outcome}{other})"));
        }
        // The outcome goes through a variable, because a destination may also be a source.
        self.line(&format!("{{ const bool x = {outcome}, y = (x{other}), z = (!x{other});"));
        self.write(what, &what.operands[0], Type::Pred, "y")?;
        self.write(what, &what.operands[1], Type::Pred, "z")?;
        self.line("}");
        Ok(())
    }
}
