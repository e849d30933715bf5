//! What cannot be translated.

use crate::ir::Instruction;

/// Why a module cannot be translated. Each names the instruction with all its suffixes, and its line in the PTX text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// An instruction, or a variant of one, that has no translation.
    #[error("line {line}: {instruction} is not served")]
    NotServed {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// Operands of another kind than the instruction takes.
    #[error("line {line}: {instruction} does not take this operand: {operand}")]
    Operand {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
        /// What it has.
        operand: String,
    },
    /// A rounding mode that this instruction has no translation for.
    #[error("line {line}: {instruction}: this rounding is not served")]
    Rounding {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// Double precision on a device that has none.
    #[error("line {line}: {instruction} needs double precision, which the device does not have")]
    DoublePrecision {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// An atomic of 64 bits on a device that has none.
    #[error("line {line}: {instruction} needs atomics of 64 bits, which the device does not have")]
    Atomics64 {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// An atomic that no OpenCL device has: 128 bits.
    #[error("line {line}: {instruction} needs atomics of 128 bits")]
    Atomics128 {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// A function that can call itself.
    #[error("line {line}: {function} can call itself, which is not served")]
    Recursion {
        /// Its name in PTX.
        function: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// A call through a register whose callees cannot be told.
    #[error("line {line}: {instruction}: calls through pointers are not served")]
    IndirectCall {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// `malloc` or `free` on the device.
    #[error("line {line}: {function} on the device is not served")]
    DeviceMemory {
        /// `malloc` or `free`.
        function: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// A call of a function that the module does not have.
    #[error("line {line}: the function {function} has no body here")]
    External {
        /// Its name in PTX.
        function: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// The kernel with all functions it calls is too large.
    #[error("{kernel} with all that it calls has more than {most} {what}")]
    TooLarge {
        /// Its name in PTX.
        kernel: String,
        /// Of what it has too many.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A texture or surface instruction with a shape that has no translation.
    #[error("line {line}: {instruction}: this kind of texture is not served")]
    Texture {
        /// With all its suffixes.
        instruction: String,
        /// Of the text, from 1.
        line: u32,
    },
    /// No arena, or several where checks want one.
    #[error("{count} arenas: there must be one or more, and exactly one for checks")]
    Arenas {
        /// How many there are.
        count: usize,
    },
}

impl TranslateError {
    pub(super) fn not_served(what: &Instruction) -> Self {
        Self::NotServed { instruction: what.mnemonic.to_string(), line: what.line }
    }

    pub(super) fn operand(what: &Instruction, operand: impl std::fmt::Debug) -> Self {
        Self::Operand {
            instruction: what.mnemonic.to_string(),
            line: what.line,
            operand: format!("{operand:?}"),
        }
    }
}
