//! A row of the table of forms.

use crate::ir::Opcode;

/// One form of an instruction, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormRow {
    /// The first word of the opcode, such as `add`.
    pub name: &'static str,
    /// The possible suffixes, in the notation of PTX's manual.
    pub suffixes: &'static str,
    /// The operands with their types.
    pub operands: &'static str,
    /// What the instruction does, in one line.
    pub doc: &'static str,
    /// Opcode of the parsed instruction.
    pub opcode: Opcode,
}

impl FormRow {
    /// Returns the form without types, such as `add{.sat}.s32 d, a, b`.
    pub fn syntax(&self) -> String {
        let operands: Vec<&str> = self
            .operands
            .split_whitespace()
            .map(|operand| operand.split(':').next().unwrap_or(operand))
            .collect();
        let mut text = format!("{}{}", self.name, self.suffixes);
        if !operands.is_empty() {
            text.push(' ');
            text.push_str(&operands.join(", ").replace(", |", "|"));
        }
        text
    }
}
