//! What can be wrong with a PTX text.

use thiserror::Error;

/// A PTX text that cannot be served, with the place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("ptx:{line}:{column}: {kind}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// What is wrong.
    pub kind: ParseErrorKind,
}

/// What is wrong with a PTX text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Something else was needed there.
    #[error("{expected} expected, but there is {found}")]
    Unexpected {
        /// What the text has.
        found: String,
        /// What PTX asks for.
        expected: &'static str,
    },
    /// A byte that starts nothing.
    #[error("the character {0:?} starts nothing in PTX")]
    Character(char),
    /// A number that is none, or is too large.
    #[error("`{0}` is not a number that fits")]
    Number(String),
    /// A directive that is not served.
    #[error("the directive `{0}` is not served")]
    Directive(String),
    /// An opcode that is not served.
    #[error("the instruction `{0}` is not served")]
    UnknownInstruction(String),
    /// An opcode with suffixes that do not go together or are not served.
    #[error("this form of `{opcode}` is not served: `{text}`")]
    UnknownForm {
        /// The opcode.
        opcode: String,
        /// The whole instruction.
        text: String,
    },
    /// An operand that does not fit.
    #[error("operand {number} of `{text}`: {problem}")]
    Operand {
        /// Which, from 1.
        number: usize,
        /// The whole instruction.
        text: String,
        /// Why not.
        problem: OperandProblem,
    },
    /// Too few or too many operands.
    #[error("`{0}` has the wrong number of operands")]
    OperandCount(String),
    /// A name that nothing declares.
    #[error("nothing declares `{0}`")]
    UnknownName(String),
    /// A name that is something else than the place needs.
    #[error("`{name}` is not {needed}")]
    WrongName {
        /// The name.
        name: String,
        /// What it should be.
        needed: &'static str,
    },
    /// A name declared twice in one place.
    #[error("`{0}` is declared twice")]
    Duplicate(String),
    /// A variable of another module.
    #[error("the variable `{0}` is of another module; modules are not linked")]
    ExternalVariable(String),
    /// An initial value that cannot be stored.
    #[error("the initial value of `{name}` is not served: {problem}")]
    Initialiser {
        /// The variable.
        name: String,
        /// Why not.
        problem: &'static str,
    },
    /// A limit of ours.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are served.
        limit: u64,
    },
    /// An alignment that is no power of two, or above the limit.
    #[error("{0} is not an alignment")]
    Alignment(u64),
    /// Addresses of 32 bits.
    #[error("only modules with addresses of 64 bits are served")]
    AddressSize,
    /// The head of the module is not there.
    #[error("the module does not start with .version and .target")]
    NoHead,
}

/// Why an operand does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OperandProblem {
    /// A register of another type.
    #[error("`{name}` is .{found}, the instruction needs .{needed}")]
    Type {
        /// The register.
        name: String,
        /// Its type.
        found: &'static str,
        /// The type that fits.
        needed: &'static str,
    },
    /// Something else than the place needs.
    #[error("{0} expected")]
    Kind(&'static str),
    /// A vector of another length.
    #[error("a vector of {needed} expected, this has {found}")]
    Length {
        /// Elements of the operand.
        found: usize,
        /// Elements that fit.
        needed: usize,
    },
    /// A number of the wrong kind.
    #[error("this number does not fit .{0}")]
    Number(&'static str),
}
