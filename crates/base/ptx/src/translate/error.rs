use crate::error::ParseError;
use crate::ir::{Function, Instruction};

/// Why a kernel cannot be translated, with the name of the instruction or function and its line in
/// the PTX text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// A function with an instruction that the parser does not know.
    #[error("{error}, in the function {function}")]
    Refused { function: String, error: ParseError },
    /// An instruction, or a variant of one, that is not supported.
    #[error("line {line}: {instruction} is not supported")]
    Unsupported { instruction: String, line: u32 },
    /// Operands of another kind than the instruction takes.
    #[error("line {line}: {instruction} does not take this operand: {operand}")]
    Operand { instruction: String, line: u32, operand: String },
    /// A rounding mode that is not supported for this instruction.
    #[error("line {line}: {instruction}: this rounding mode is not supported")]
    Rounding { instruction: String, line: u32 },
    /// Double precision on a device that does not have it.
    #[error("line {line}: {instruction} needs double precision, which the device does not have")]
    DoublePrecision { instruction: String, line: u32 },
    /// A 64-bit atomic on a device that does not have it.
    #[error("line {line}: {instruction} needs 64-bit atomics, which the device does not have")]
    Atomics64 { instruction: String, line: u32 },
    /// A 128-bit atomic, which no OpenCL device has.
    #[error("line {line}: {instruction} needs 128-bit atomics, which are not supported")]
    Atomics128 { instruction: String, line: u32 },
    #[error("line {line}: {function} can call itself, which is not supported")]
    Recursion { function: String, line: u32 },
    /// A call of a function that the module does not define.
    #[error("line {line}: the module does not define the function {function}")]
    External { function: String, line: u32 },
    /// A kernel that is too large together with the functions it calls.
    #[error("{kernel}, with the functions that it calls, has more than {most} {what}")]
    TooLarge { kernel: String, what: &'static str, most: usize },
    /// A texture or surface instruction whose shape is not supported.
    #[error("line {line}: {instruction}: this kind of texture is not supported")]
    Texture { instruction: String, line: u32 },
    /// No arena, or several arenas with checks.
    #[error("{count} arenas: at least one is needed, and exactly one for checks")]
    Arenas { count: usize },
}

impl TranslateError {
    pub(super) fn refused(function: &Function, error: &ParseError) -> Self {
        Self::Refused { function: function.name.clone(), error: error.clone() }
    }

    pub(super) fn unsupported(what: &Instruction) -> Self {
        Self::Unsupported { instruction: what.mnemonic.to_string(), line: what.line }
    }

    pub(super) fn rounding(what: &Instruction) -> Self {
        Self::Rounding { instruction: what.mnemonic.to_string(), line: what.line }
    }

    pub(super) fn operand(what: &Instruction, operand: impl std::fmt::Debug) -> Self {
        Self::Operand {
            instruction: what.mnemonic.to_string(),
            line: what.line,
            operand: format!("{operand:?}"),
        }
    }
}
