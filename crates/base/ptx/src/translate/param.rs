//! Parameters of the kernel: a structure of 8-byte words, with an alignment of 8.

use super::error::TranslateError;
use super::kernel::parameter_words;
use super::lvalue::{AccessType, Lvalue};
use super::writer::Writer;
use crate::ir::{Function, Instruction, Opcode, Space, Statement, Symbol};

/// Whether a kernel forms generic addresses of its parameters.
pub(super) fn has_window(function: &Function) -> bool {
    function.body.iter().flatten().any(|statement| match statement {
        Statement::Instruction(what) => {
            what.opcode == Opcode::Cvta
                && what.modifiers.space == Some(Space::Param)
                && !what.modifiers.to
        }
        Statement::Label(_) => false,
    })
}

/// Returns the C type of an element of an access without the prefixes of memory types, and the
/// number of elements: `float` and 4 for `volatile a_float4`.
fn element(ty: &str) -> (&str, u32) {
    let name = ty.trim_start_matches("volatile ").trim_start_matches("a_");
    let element = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (element, name[element.len()..].parse().unwrap_or(1))
}

impl Writer<'_> {
    /// Returns the readable bytes of the structure.
    fn param_bytes(&self) -> u32 {
        8 * parameter_words(self.entry)
    }

    /// Returns a parameter of the kernel at a constant place.
    pub(super) fn parameter(
        &mut self,
        what: &Instruction,
        symbol: Symbol,
        offset: i64,
        access: AccessType<'_>,
    ) -> Result<Lvalue, TranslateError> {
        let Symbol::Param(index) = symbol else {
            return Err(TranslateError::operand(what, symbol));
        };
        let Some(formal) = self.function.params.get(index as usize) else {
            return Err(TranslateError::operand(what, symbol));
        };
        let place = i64::from(formal.offset).wrapping_add(offset);
        let inside = place >= 0
            && place.saturating_add(i64::from(access.bytes)) <= i64::from(self.param_bytes());
        if !inside {
            return Err(TranslateError::operand(what, symbol));
        }
        let (element, lanes) = element(access.ty);
        if lanes == 1 {
            return Ok(Lvalue::Known(word(element, place, access.bytes)));
        }
        // The structure is less aligned than the vector, so the vector is composed from its
        // elements.
        let bytes = access.bytes / lanes;
        let parts: Vec<String> = (0..i64::from(lanes))
            .map(|lane| word(element, place + lane * i64::from(bytes), bytes))
            .collect();
        Ok(Lvalue::Known(format!("({element}{lanes})({})", parts.join(", "))))
    }

    /// Returns a parameter at a computed offset.
    pub(super) fn parameter_at(
        &mut self,
        offset: &str,
        access: AccessType<'_>,
        line: u32,
    ) -> String {
        let mut offset = format!("(uint)({offset})");
        if self.options.check {
            self.uses_faults = true;
            let limit = self.param_bytes();
            offset = format!(
                "ps_bound(arena0, control, {offset}, {}u, {limit}u, {line}u)",
                access.bytes
            );
        }
        let (element, lanes) = element(access.ty);
        match lanes {
            1 => format!("(*(const a_{element} *)((const uchar *)&p + {offset}))"),
            _ => format!("vload{lanes}(0, (const {element} *)((const uchar *)&p + {offset}))"),
        }
    }
}

/// Returns one value at a place in the structure, as an expression.
fn word(ty: &str, place: i64, bytes: u32) -> String {
    let (word, shift) = (place / 8, place % 8 * 8);
    let fits = shift + i64::from(bytes) * 8 <= 64;
    let low = format!("(p.w[{word}] >> {shift})");
    match ty {
        "ulong" if shift == 0 => format!("p.w[{word}]"),
        "long" if shift == 0 => format!("(long)p.w[{word}]"),
        "double" if shift == 0 => format!("as_double(p.w[{word}])"),
        "float" if shift % 32 == 0 => format!("as_float((uint){low})"),
        "uint" | "int" | "ushort" | "short" | "uchar" | "char" if fits => format!("({ty}){low}"),
        other => format!("(*(const a_{other} *)((const uchar *)&p + {place}))"),
    }
}
