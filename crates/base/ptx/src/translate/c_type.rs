//! The C types of PTX types, and C expressions that convert between them.

use crate::ir::{Immediate, Kind, Type};

/// Returns the C type in which a value of this type is computed. Halves and pairs are kept as bits.
pub(super) const fn value_type(ty: Type) -> &'static str {
    match ty {
        Type::Pred => "bool",
        Type::B8 | Type::U8 => "uchar",
        Type::S8 => "char",
        Type::B16 | Type::U16 | Type::F16 | Type::Bf16 => "ushort",
        Type::S16 => "short",
        Type::B32 | Type::U32 | Type::F16x2 | Type::Bf16x2 | Type::U16x2 | Type::S16x2 => "uint",
        Type::S32 => "int",
        Type::B64 | Type::U64 | Type::F32x2 | Type::Texref | Type::Samplerref | Type::Surfref => {
            "ulong"
        }
        Type::S64 => "long",
        Type::F32 => "float",
        Type::F64 => "double",
        Type::B128 => "ulong2",
    }
}

/// Returns the C type of a register that is declared with this type.
pub(super) const fn register_type(ty: Type) -> &'static str {
    match ty {
        Type::S8 | Type::B8 | Type::U8 | Type::S16 => "ushort",
        Type::S32 => "uint",
        Type::S64 => "ulong",
        other => value_type(other),
    }
}

pub(super) const fn unsigned(ty: Type) -> Type {
    match ty.bits() {
        8 => Type::U8,
        16 => Type::U16,
        32 => Type::U32,
        128 => Type::B128,
        1 => Type::Pred,
        _ => Type::U64,
    }
}

pub(super) const fn signed(ty: Type) -> Type {
    match ty.bits() {
        8 => Type::S8,
        16 => Type::S16,
        32 => Type::S32,
        _ => Type::S64,
    }
}

const fn is_c_float(ty: Type) -> bool {
    matches!(ty, Type::F32 | Type::F64)
}

/// Reinterprets a value of type `from` (a register's type or a [`value_type`]) as `to`. The bits
/// are kept, and a wider value is truncated.
pub(super) fn converted(value: &str, from: Type, to: Type) -> String {
    if value_type(from) == value_type(to) && register_type(from) == value_type(to) {
        return value.to_owned();
    }
    match (is_c_float(from), is_c_float(to)) {
        (false, false) if to == Type::Pred => format!("({value} != 0)"),
        (false, false) => format!("({}){value}", value_type(to)),
        (false, true) if from.bits() == to.bits() => format!("as_{}({value})", value_type(to)),
        (false, true) => format!("as_{}(({}){value})", value_type(to), value_type(unsigned(to))),
        (true, false) => {
            let bits = format!("as_{}({value})", value_type(unsigned(from)));
            if value_type(to) == value_type(unsigned(from)) {
                bits
            } else {
                format!("({}){bits}", value_type(to))
            }
        }
        (true, true) if from == to => value.to_owned(),
        (true, true) => format!(
            "as_{}(({})as_{}({value}))",
            value_type(to),
            value_type(unsigned(to)),
            value_type(unsigned(from))
        ),
    }
}

/// Converts a value of type `ty` for a register of type `declared`. Signed values are
/// sign-extended, others zero-extended.
pub(super) fn widened(value: &str, ty: Type, declared: Type) -> String {
    let target = register_type(declared);
    if value_type(ty) == target {
        return value.to_owned();
    }
    match (is_c_float(ty), is_c_float(declared)) {
        (false, false) => format!("({target})({value})"),
        (false, true) => format!("as_{target}(({})({value}))", value_type(unsigned(declared))),
        (true, false) => format!("({target})as_{}({value})", value_type(unsigned(ty))),
        (true, true) => format!(
            "as_{target}(({})as_{}({value}))",
            value_type(unsigned(declared)),
            value_type(unsigned(ty))
        ),
    }
}

/// Returns a number as a C constant of a type.
pub(super) fn immediate(number: Immediate, ty: Type) -> String {
    let bits = match number {
        Immediate::Integer(bits) => bits,
        Immediate::Single(bits) => u64::from(bits),
        Immediate::Double(bits) => bits,
    };
    // PTX converts a single-precision number for a double operand, and the reverse.
    let bits = match (number, ty) {
        (Immediate::Single(single), Type::F64) => f64::from(f32::from_bits(single)).to_bits(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded to single precision, as PTX says"
        )]
        (Immediate::Double(double), Type::F32) => {
            u64::from((f64::from_bits(double) as f32).to_bits())
        }
        _ => bits,
    };
    let low = bits & 0xffff_ffff;
    match ty {
        Type::Pred => String::from(if bits == 0 { "false" } else { "true" }),
        Type::F32 => format!("as_float({low:#x}u)"),
        Type::F64 => format!("as_double({bits:#x}UL)"),
        Type::B128 => format!("(ulong2)({bits:#x}UL, 0UL)"),
        _ => match ty.bits() {
            8 => format!("(({}){:#x}u)", value_type(ty), bits & 0xff),
            16 => format!("(({}){:#x}u)", value_type(ty), bits & 0xffff),
            32 if ty.kind() == Kind::Signed => format!("((int){low:#x}u)"),
            32 => format!("{low:#x}u"),
            _ if ty.kind() == Kind::Signed => format!("((long){bits:#x}UL)"),
            _ => format!("{bits:#x}UL"),
        },
    }
}
