//! From the text of a module to the module.

pub use crate::error::{OperandProblem, ParseError, ParseErrorKind};
pub use crate::ir::{Entry, Global, Module, ModuleData, Param, Relocation};
use crate::parser;

/// Reads PTX, as nvcc, clang and NVVM write it. NULs at the end are no part of the text.
///
/// # Errors
/// What is not PTX, and what is PTX but not served, with line, column and the instruction's text.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    parser::parse(text)
}
