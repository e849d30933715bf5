//! Makes one module of several, as nvlink does with their machine code.
//!
//! The result is text again, because a program may store it, load it elsewhere or link it once
//! more. It has the texts of the modules one behind the other. If no name is in two of them,
//! nothing else changes. Otherwise `table` decides what each name means, `reach` finds names
//! that nobody defines, and `edit` changes the texts:
//!
//! - A name that only its module may see gets another name if a second module has that name.
//! - Of several declarations of one name only the chosen definition stays. The first of those
//!   before it becomes a declaration of the chosen definition.

mod edit;
mod problem;
mod reach;
mod table;

use crate::error::ParseError;
use crate::parser;
use crate::symbols::Symbols;

pub use problem::{LinkError, LinkProblem};

/// Largest number of modules. The largest programs have some thousand files.
const INPUTS_MAX: usize = 1 << 16;

/// Largest size of all texts together, in bytes: the parser reads no longer text.
const TEXT_BYTES_MAX: usize = 512 << 20;

/// A module to be linked.
#[derive(Debug)]
pub struct Input {
    /// Its name in messages.
    pub(crate) name: String,
    pub(crate) text: Box<str>,
    pub(crate) symbols: Symbols,
}

impl Input {
    /// Reads a module. `name` stands for it in messages.
    ///
    /// # Errors
    /// The text is not PTX, see [`crate::module::parse`].
    pub fn read(name: String, text: Box<str>) -> Result<Self, ParseError> {
        // What stands behind a NUL belongs to no module.
        let end = text.find('\0').unwrap_or(text.len());
        let text: Box<str> = if end < text.len() { text[..end].into() } else { text };
        let symbols = parser::symbols(&text)?;
        Ok(Self { name, text, symbols })
    }

    fn named(&self, symbol: usize) -> &str {
        &self.text[self.symbols.list[symbol].name.clone()]
    }
}

/// A linked module.
#[derive(Debug)]
pub struct Linked {
    pub text: String,
    /// Number of names that got another name, because two modules had them for themselves.
    pub renamed: usize,
    /// Number of declarations and definitions that were left out, because another module has the
    /// chosen one.
    pub merged: usize,
}

/// A symbol of a module, by the indices of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) module: usize,
    pub(crate) symbol: usize,
}

/// Links modules, in this order.
///
/// # Errors
/// All names that two modules define, declare differently, or use without a definition.
pub fn link(inputs: &[Input]) -> Result<Linked, LinkError> {
    if inputs.is_empty() {
        return Err(LinkError::of(LinkProblem::NoInput));
    }
    let bytes = inputs.iter().fold(0_usize, |sum, input| sum.saturating_add(input.text.len()));
    for (what, found, limit) in
        [("modules", inputs.len(), INPUTS_MAX), ("bytes of text", bytes, TEXT_BYTES_MAX)]
    {
        if found > limit {
            return Err(LinkError::of(LinkProblem::TooMany { what, limit }));
        }
    }
    let mut problems = LinkError::default();
    let table = table::Table::of(inputs, &mut problems);
    reach::check(inputs, &table, &mut problems);
    if problems.is_empty() { Ok(edit::joined(inputs, &table)) } else { Err(problems) }
}
