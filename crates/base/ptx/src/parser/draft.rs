//! What the parser has read so far: the module, and the function that it is reading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::cursor::Cursor;
use super::initial::Initial;
use super::recorder::Recorder;
use super::scope::FunctionScope;
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{Function, FunctionId, GlobalId, Opaque, SharedId, SharedVariable, Statement};
use crate::layout::LaunchBounds;
use crate::lexer::TextPosition;

/// Meaning of a name of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModuleName {
    Global(GlobalId),
    Shared(SharedId),
    Function(FunctionId),
}

/// A `.global` or `.const` variable before the layout.
#[derive(Debug)]
pub(super) struct GlobalDraft<'a> {
    pub(super) name: &'a str,
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) is_const: bool,
    pub(super) is_managed: bool,
    pub(super) opaque: Option<Opaque>,
    pub(super) initial: Initial<'a>,
    /// Whether it is declared `.extern`, so that another module defines it.
    pub(super) external: bool,
}

/// A kernel before the layout.
#[derive(Debug)]
pub(super) struct EntryDraft {
    pub(super) function: FunctionId,
    pub(super) bounds: LaunchBounds,
}

/// The module while the parser reads it.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    pub(super) version: (u32, u32),
    pub(super) target: u32,
    pub(super) names: HashMap<&'a str, ModuleName>,
    pub(super) globals: Vec<GlobalDraft<'a>>,
    pub(super) shared: Vec<SharedVariable>,
    pub(super) functions: Vec<Function>,
    pub(super) entries: Vec<EntryDraft>,
    pub(super) mnemonics: HashMap<&'a str, Arc<str>>,
    /// The functions of `.alias` statements: the alias and what it stands for.
    pub(super) aliases: Vec<(FunctionId, FunctionId)>,
    /// The names of these aliases.
    pub(super) aliased: HashSet<&'a str>,
    /// Variables that functions use and that were not yet defined then, with the first use.
    pub(super) awaited: HashMap<&'a str, TextPosition>,
    /// The `.shared` variables of a fixed size that are declared `.extern` and not yet defined.
    pub(super) awaited_shared: HashSet<SharedId>,
    /// Notes the module's names if it is going to be linked.
    pub(super) recorder: Option<Recorder<'a>>,
}

/// The body of a function while the parser reads it.
pub(super) struct FunctionDraft<'a> {
    pub(super) names: FunctionScope<'a>,
    pub(super) body: Vec<Statement>,
    /// The first instruction that is not supported.
    pub(super) refusal: Option<ParseError>,
}

impl<'a> Parser<'a> {
    /// Declares a name of the module.
    pub(super) fn declare(
        &mut self,
        name: &'a str,
        what: ModuleName,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        match self.names.insert(name, what) {
            None => Ok(()),
            Some(_) => Err(position.error(ParseErrorKind::Duplicate(name.to_owned()))),
        }
    }
}
