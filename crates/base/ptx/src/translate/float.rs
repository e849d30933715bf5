//! Single and double precision.
//!
//! The program switches contraction off. The prelude's functions compute exactly every rounding for
//! which C has no operator.

use super::c_type::value_type;
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{FloatTest, Instruction, Opcode, Rounding, Type};

impl Writer<'_> {
    pub(super) fn float(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        if ty == Type::F32x2 {
            return self.float_pair(what);
        }
        match what.opcode {
            Opcode::Setp | Opcode::Set => return self.compare(what),
            Opcode::Selp => return self.select(what),
            Opcode::Slct => return self.select_sign(what),
            Opcode::Testp => return self.test(what),
            _ => {}
        }
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(TranslateError::unsupported(what));
        }
        let count = match what.opcode {
            Opcode::Fma | Opcode::Mad => 3,
            Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div | Opcode::Copysign => 2,
            Opcode::Min | Opcode::Max => what.sources().len().clamp(2, 3),
            _ => 1,
        };
        let from = self.sources(what, ty, count)?;
        let text = self.computed(what, ty, &from)?;
        let text =
            if what.modifiers.sat { format!("ps_sat_{}({text})", value_type(ty)) } else { text };
        self.result(what, ty, &text)
    }

    /// Returns the result before saturation.
    fn computed(
        &self,
        what: &Instruction,
        ty: Type,
        from: &[String],
    ) -> Result<String, TranslateError> {
        let c = value_type(ty);
        let approx = what.modifiers.approx || what.modifiers.full;
        let directed = match what.modifiers.rounding {
            None | Some(Rounding::Rn) => None,
            Some(mode @ (Rounding::Rz | Rounding::Rm | Rounding::Rp)) => Some(mode.name()),
            Some(_) => {
                return Err(TranslateError::rounding(what));
            }
        };
        if let Some(mode) = directed {
            return self.directed(what, mode, c, from);
        }
        let all = from.join(", ");
        // A device without exact division divides single precision in double precision.
        let by_double = ty == Type::F32 && !approx && !self.options.exact_division;
        if by_double
            && matches!(what.opcode, Opcode::Div | Opcode::Rcp | Opcode::Sqrt)
            && !self.options.fp64
        {
            return Err(TranslateError::rounding(what));
        }
        Ok(match what.opcode {
            Opcode::Add => format!("({} + {})", from[0], from[1]),
            Opcode::Sub => format!("({} - {})", from[0], from[1]),
            Opcode::Mul => format!("({} * {})", from[0], from[1]),
            Opcode::Fma | Opcode::Mad => format!("fma({all})"),
            Opcode::Div if by_double => {
                format!("(float)((double){} / (double){})", from[0], from[1])
            }
            Opcode::Div => format!("({} / {})", from[0], from[1]),
            Opcode::Rcp if by_double => format!("(float)(1.0 / (double){})", from[0]),
            Opcode::Rcp => format!("(({c})1 / {})", from[0]),
            Opcode::Sqrt if by_double => format!("(float)sqrt((double){})", from[0]),
            Opcode::Sqrt => format!("sqrt({all})"),
            Opcode::Rsqrt => format!("rsqrt({all})"),
            Opcode::Sin => format!("sin({all})"),
            Opcode::Cos => format!("cos({all})"),
            Opcode::Lg2 => format!("log2({all})"),
            Opcode::Ex2 => format!("exp2({all})"),
            Opcode::Tanh => format!("tanh({all})"),
            Opcode::Abs => format!("fabs({all})"),
            Opcode::Neg => format!("(-{all})"),
            Opcode::Copysign => format!("copysign({}, {})", from[1], from[0]),
            Opcode::Min | Opcode::Max => self.extreme(what, c, from)?,
            _ => return Err(TranslateError::unsupported(what)),
        })
    }

    /// Returns the result of an instruction that rounds in another direction than to the nearest.
    fn directed(
        &self,
        what: &Instruction,
        mode: &str,
        c: &str,
        from: &[String],
    ) -> Result<String, TranslateError> {
        if !self.options.fp64 {
            return Err(TranslateError::rounding(what));
        }
        let name = match what.opcode {
            Opcode::Sub => return Ok(format!("ps_add_{mode}_{c}({}, -({}))", from[0], from[1])),
            Opcode::Add => "add",
            Opcode::Mul => "mul",
            Opcode::Fma | Opcode::Mad => "fma",
            Opcode::Div => "div",
            Opcode::Rcp => return Ok(format!("ps_div_{mode}_{c}(({c})1, {})", from[0])),
            Opcode::Sqrt => "sqrt",
            _ => return Err(TranslateError::rounding(what)),
        };
        Ok(format!("ps_{name}_{mode}_{c}({})", from.join(", ")))
    }

    fn extreme(
        &self,
        what: &Instruction,
        c: &str,
        from: &[String],
    ) -> Result<String, TranslateError> {
        let name = match (what.opcode, what.modifiers.nan) {
            (Opcode::Min, false) => "ps_min",
            (Opcode::Max, false) => "ps_max",
            (Opcode::Min, true) => "ps_min_nan",
            _ => "ps_max_nan",
        };
        if what.modifiers.xorsign || what.modifiers.abs {
            if c != "float" || from.len() != 2 {
                return Err(TranslateError::unsupported(what));
            }
            let value = format!("{name}_{c}(fabs({}), fabs({}))", from[0], from[1]);
            return Ok(match what.modifiers.xorsign {
                true => format!("ps_xorsign({value}, {}, {})", from[0], from[1]),
                false => value,
            });
        }
        let two = format!("{name}_{c}({}, {})", from[0], from[1]);
        Ok(if let Some(third) = from.get(2) { format!("{name}_{c}({two}, {third})") } else { two })
    }

    /// Computes with two single-precision numbers in one register.
    fn float_pair(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        if !matches!(what.modifiers.rounding, None | Some(Rounding::Rn)) || what.modifiers.sat {
            return Err(TranslateError::rounding(what));
        }
        let count = if what.opcode == Opcode::Fma { 3 } else { 2 };
        let from = self.sources(what, Type::U64, count)?;
        let part: Vec<String> = from.iter().map(|text| format!("as_float2({text})")).collect();
        let text = match what.opcode {
            Opcode::Add => format!("{} + {}", part[0], part[1]),
            Opcode::Sub => format!("{} - {}", part[0], part[1]),
            Opcode::Mul => format!("{} * {}", part[0], part[1]),
            Opcode::Fma => format!("fma({})", part.join(", ")),
            _ => return Err(TranslateError::unsupported(what)),
        };
        self.result(what, Type::U64, &format!("as_ulong({text})"))
    }

    fn test(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let from = self.sources(what, ty, 1)?;
        let a = &from[0];
        let text = match what.modifiers.test {
            Some(FloatTest::Finite) => format!("(isfinite({a}) != 0)"),
            Some(FloatTest::Infinite) => format!("(isinf({a}) != 0)"),
            Some(FloatTest::Number) => format!("({a} == {a})"),
            Some(FloatTest::Notanumber) => format!("({a} != {a})"),
            Some(FloatTest::Normal) => format!("(isnormal({a}) != 0)"),
            Some(FloatTest::Subnormal) => format!("(!isnormal({a}) && isfinite({a}) && {a} != 0)"),
            None => return Err(TranslateError::unsupported(what)),
        };
        self.result(what, Type::Pred, &text)
    }
}
