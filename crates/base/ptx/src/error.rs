//! Errors of PTX texts.

use thiserror::Error;

/// A PTX text that is malformed or not supported, with the place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("ptx:{line}:{column}: {kind}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in bytes, counted from 1.
    pub column: u32,
    pub kind: ParseErrorKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text has something other than PTX's grammar asks for.
    #[error("expected {expected}, but found {found}")]
    Unexpected { found: String, expected: &'static str },
    /// A character that cannot start a token.
    #[error("the character {0:?} is not valid here")]
    Character(char),
    /// A malformed number, or one that is too large.
    #[error("the number `{0}` is malformed or out of range")]
    Number(String),
    /// A directive that is not supported.
    #[error("the directive `{0}` is not supported")]
    Directive(String),
    /// An opcode that is not supported.
    #[error("the instruction `{0}` is not supported")]
    UnknownInstruction(String),
    /// An opcode with suffixes that contradict each other or are not supported.
    #[error("this form of `{opcode}` is not supported: `{text}`")]
    UnknownForm {
        opcode: String,
        /// The whole instruction, without its semicolon.
        text: String,
    },
    /// An operand that does not fit.
    #[error("operand {number} of `{text}`: {problem}")]
    Operand {
        /// Ordinal of the operand, counted from 1.
        number: usize,
        /// The whole instruction, without its semicolon.
        text: String,
        problem: OperandProblem,
    },
    #[error("`{0}` has the wrong number of operands")]
    OperandCount(String),
    /// A name that is not declared.
    #[error("`{0}` is not declared")]
    UnknownName(String),
    /// A name of another kind than the place needs.
    #[error("`{name}` is not {needed}")]
    WrongName {
        name: String,
        /// The kind that the place needs.
        needed: &'static str,
    },
    /// A name declared twice in one scope.
    #[error("`{0}` is declared twice")]
    Duplicate(String),
    /// A variable that another module defines.
    #[error("the variable `{0}` is defined in another module, and modules are not linked")]
    ExternalVariable(String),
    /// An initial value that cannot be stored.
    #[error("the initial value of `{name}` is not supported: {problem}")]
    Initialiser {
        /// Name of the variable.
        name: String,
        problem: &'static str,
    },
    /// A limit of this crate is exceeded.
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: u64 },
    /// An alignment that is not a power of two, or is above the limit.
    #[error("{0} is not a valid alignment")]
    Alignment(u64),
    /// The module asks for 32-bit addresses.
    #[error("only modules with 64-bit addresses are supported")]
    AddressSize,
    /// The module does not start with `.version` and `.target`.
    #[error("the module does not start with .version and .target")]
    NoHead,
}

impl ParseErrorKind {
    /// Whether the text can be read although one instruction cannot be served. Then only what
    /// executes the instruction is refused. A missing declaration, brace or semicolon is an error
    /// of the whole text.
    pub(crate) fn is_of_an_instruction(&self) -> bool {
        match self {
            Self::UnknownInstruction(_)
            | Self::UnknownForm { .. }
            | Self::Operand { .. }
            | Self::OperandCount(_) => true,
            // Perhaps a special register of a later version of PTX.
            Self::UnknownName(name) => name.starts_with('%'),
            _ => false,
        }
    }
}

/// Why an operand does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OperandProblem {
    /// A register of a type that does not fit.
    #[error("`{name}` is .{found}, the instruction needs .{needed}")]
    Type { name: String, found: &'static str, needed: &'static str },
    /// An operand of a kind that does not fit.
    #[error("expected {0}")]
    Kind(&'static str),
    /// A vector of the wrong length.
    #[error("expected a vector of {needed} elements, but found {found}")]
    Length {
        /// Number of elements in the text.
        found: usize,
        /// Number of elements that the instruction takes.
        needed: usize,
    },
    /// A number of a kind that does not fit the type.
    #[error("this number does not fit .{0}")]
    Number(&'static str),
}
