pub use crate::error::{OperandProblem, ParseError, ParseErrorKind};
pub use crate::ir::{Entry, Global, Module, ModuleData, Param, Relocation};
use crate::parser;

/// Parses PTX as nvcc, clang and NVVM write it. NULs at the end are ignored.
///
/// # Errors
/// Text that is not PTX, or that uses unsupported PTX, with line, column and the instruction's
/// text.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    parser::parse(text)
}
