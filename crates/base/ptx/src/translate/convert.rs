//! `cvt`: conversions between types of numbers.

use super::c_type::value_type;
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{Instruction, Kind, Rounding, Type};

/// Returns the name of a type in the prelude's functions.
fn letters(ty: Type) -> &'static str {
    match ty {
        Type::F16 => "half",
        Type::Bf16 => "bf16",
        other => value_type(other),
    }
}

impl Writer<'_> {
    pub(super) fn convert(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let (to, from) = (what.ty(), what.source_type());
        if to.kind() == Kind::FloatPair {
            return self.convert_to_pair(what, to, from);
        }
        if what.modifiers.satfinite
            || to.bits() > 64
            || from.bits() > 64
            || what.sources().len() != 1
        {
            return Err(TranslateError::unsupported(what));
        }
        let value = self.sources(what, from, 1)?.remove(0);
        let text = match (to.is_float(), from.is_float()) {
            (false, false) => self.whole(to, &value, what.modifiers.sat),
            (false, true) => self.float_to_integer(what, to, from, &value)?,
            (true, false) => self.integer_to_float(what, to, from, &value)?,
            (true, true) => self.between_floats(what, to, from, &value)?,
        };
        let text = match (to.is_float() && what.modifiers.sat, what.modifiers.relu) {
            (true, _) => format!("ps_sat_{}({text})", letters(to)),
            (_, true) => format!("ps_relu_{}({text})", letters(to)),
            _ => text,
        };
        self.result(what, to, &text)
    }

    fn whole(&self, to: Type, value: &str, saturates: bool) -> String {
        let target = value_type(to);
        if saturates {
            format!("convert_{target}_sat({value})")
        } else {
            format!("({target}){value}")
        }
    }

    fn float_to_integer(
        &mut self,
        what: &Instruction,
        to: Type,
        from: Type,
        value: &str,
    ) -> Result<String, TranslateError> {
        let (c, value) = self.as_c_float(what, from, value)?;
        let rounded = match what.modifiers.rounding {
            Some(mode) => whole_number(what, mode, &value)?,
            None => {
                return Err(TranslateError::rounding(what));
            }
        };
        Ok(format!("ps_{c}_to_{}({rounded})", value_type(to)))
    }

    fn integer_to_float(
        &mut self,
        what: &Instruction,
        to: Type,
        from: Type,
        value: &str,
    ) -> Result<String, TranslateError> {
        let refused = || TranslateError::rounding(what);
        let mode = match what.modifiers.rounding {
            Some(mode @ (Rounding::Rn | Rounding::Rz | Rounding::Rm | Rounding::Rp)) => mode,
            _ => return Err(refused()),
        };
        if mode == Rounding::Rn {
            match to {
                Type::F32 => return Ok(format!("(float){value}")),
                Type::F64 => return Ok(format!("(double){value}")),
                _ => {}
            }
        }
        let sign = if from.is_signed() { "long" } else { "ulong" };
        Ok(match to {
            // A double holds every integer of 32 bits.
            Type::F64 if from.bits() <= 32 => format!("(double){value}"),
            Type::F32 | Type::F64 | Type::F16 | Type::Bf16 => {
                format!("ps_{sign}_to_{}_{}(({sign}){value})", letters(to), mode.name())
            }
            _ => return Err(TranslateError::unsupported(what)),
        })
    }

    fn between_floats(
        &mut self,
        what: &Instruction,
        to: Type,
        from: Type,
        value: &str,
    ) -> Result<String, TranslateError> {
        let mode = what.modifiers.rounding;
        let to_whole =
            matches!(mode, Some(Rounding::Rni | Rounding::Rzi | Rounding::Rmi | Rounding::Rpi));
        if to_whole || to == from {
            if to != from {
                return Err(TranslateError::rounding(what));
            }
            let Some(mode) = mode.filter(|_| to_whole) else { return Ok(value.to_owned()) };
            let (_, wide) = self.as_c_float(what, from, value)?;
            let whole = whole_number(what, mode, &wide)?;
            return Ok(match to {
                Type::F32 | Type::F64 => whole,
                _ => format!("ps_float_to_{}_rn({whole})", letters(to)),
            });
        }
        let (c, value) = self.as_c_float(what, from, value)?;
        match (to, c) {
            (Type::F32, "float") | (Type::F64, "double") => return Ok(value),
            (Type::F64, _) => return Ok(format!("(double){value}")),
            _ => {}
        }
        let mode = mode.unwrap_or(Rounding::Rn);
        match (to, mode) {
            (Type::F32, Rounding::Rn) => Ok(format!("(float){value}")),
            (_, Rounding::Rn | Rounding::Rz | Rounding::Rm | Rounding::Rp) => {
                Ok(format!("ps_{c}_to_{}_{}({value})", letters(to), mode.name()))
            }
            _ => Err(TranslateError::rounding(what)),
        }
    }

    /// Returns a value as `float` or `double`, which hold every half, and the name of that type.
    fn as_c_float(
        &self,
        what: &Instruction,
        ty: Type,
        value: &str,
    ) -> Result<(&'static str, String), TranslateError> {
        Ok(match ty {
            Type::F32 => ("float", value.to_owned()),
            Type::F64 => ("double", value.to_owned()),
            Type::F16 => ("float", format!("ps_half_to_float({value})")),
            Type::Bf16 => ("float", format!("ps_bf16_to_float({value})")),
            _ => return Err(TranslateError::unsupported(what)),
        })
    }

    /// `cvt.rn.f16x2.f32 d, a, b` puts `a` into the upper half.
    fn convert_to_pair(
        &mut self,
        what: &Instruction,
        to: Type,
        from: Type,
    ) -> Result<(), TranslateError> {
        let part = match to {
            Type::F16x2 => Type::F16,
            Type::Bf16x2 => Type::Bf16,
            _ => return Err(TranslateError::unsupported(what)),
        };
        let mode = match what.modifiers.rounding {
            Some(mode @ (Rounding::Rn | Rounding::Rz)) => mode,
            _ => {
                return Err(TranslateError::rounding(what));
            }
        };
        if from != Type::F32 || what.modifiers.satfinite || what.sources().len() != 2 {
            return Err(TranslateError::unsupported(what));
        }
        let from = self.sources(what, Type::F32, 2)?;
        let half = |value: &str| {
            let text = format!("ps_float_to_{}_{}({value})", letters(part), mode.name());
            if what.modifiers.relu { format!("ps_relu_{}({text})", letters(part)) } else { text }
        };
        let text = format!("((uint){} << 16 | (uint){})", half(&from[0]), half(&from[1]));
        self.result(what, Type::U32, &text)
    }
}

/// Returns a C float rounded to an integer.
fn whole_number(what: &Instruction, mode: Rounding, value: &str) -> Result<String, TranslateError> {
    let name = match mode {
        Rounding::Rni | Rounding::Rn => "rint",
        Rounding::Rzi | Rounding::Rz => "trunc",
        Rounding::Rmi | Rounding::Rm => "floor",
        Rounding::Rpi | Rounding::Rp => "ceil",
        Rounding::Rna => {
            return Err(TranslateError::rounding(what));
        }
    };
    Ok(format!("{name}({value})"))
}
