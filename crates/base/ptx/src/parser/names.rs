//! The names of a module: those that are used before they are defined, and notes for a linker.

use std::ops::Range;

use super::cursor::Cursor;
use super::draft::{ModuleName, Parser};
use super::initial::Initial;
use super::recorder::{Directive, Parts};
use super::scope::{FunctionScope, Mention};
use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{TextPosition, Token};
use crate::symbols::{Linkage, SymbolKind};

impl<'a> Parser<'a> {
    /// Handles the names of the module that a function has used.
    pub(super) fn mentioned(&mut self, function: &'a str, mentions: Vec<Mention<'a>>) {
        for mention in mentions {
            if self.is_awaited(mention.name) {
                self.awaited.entry(mention.name).or_insert(mention.position);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.mention(Some(function), mention);
            }
        }
    }

    /// Whether it is a variable that is declared `.extern` and not yet defined.
    fn is_awaited(&self, name: &str) -> bool {
        match self.names.get(name) {
            Some(ModuleName::Global(id)) => self.globals[id.index()].external,
            Some(ModuleName::Shared(id)) => self.awaited_shared.contains(id),
            _ => false,
        }
    }

    /// Returns an error if a function uses a variable that no module has defined.
    pub(super) fn check_awaited(&self) -> Result<(), ParseError> {
        let open = self.awaited.iter().filter(|(name, _)| self.is_awaited(name));
        match open.min_by_key(|(_, position)| position.offset) {
            Some((name, position)) => {
                Err(position.error(ParseErrorKind::ExternalVariable((*name).to_owned())))
            }
            None => Ok(()),
        }
    }

    /// Notes the names in a statement that the parser has skipped. `start` stands at its beginning.
    /// The opcode and its predicate are no names of the module.
    pub(super) fn mention_skipped(
        &mut self,
        mut start: Cursor<'a>,
        names: &mut FunctionScope<'a>,
    ) -> Result<(), ParseError> {
        if self.recorder.is_none() {
            return Ok(());
        }
        if start.accept('@')? {
            start.accept('!')?;
            start.advance()?;
        }
        start.advance()?;
        while start.position().offset < self.cursor.position().offset {
            let position = start.position();
            if let Token::Word(name) = start.advance()?
                && self.names.contains_key(name)
                && names.find(name, position)?.is_none()
            {
                names.skipped.push(Mention { name, position, is_call: false });
            }
        }
        Ok(())
    }

    /// Notes a function for a linker. `head` is the place of all before its body.
    pub(super) fn record_function(
        &mut self,
        directive: Directive,
        (name, position): (&'a str, TextPosition),
        head: Range<usize>,
        kind: SymbolKind,
        is_definition: bool,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        let end = self.cursor.end();
        let (name_at, shape, item) = (position.offset, head.clone(), directive.start..end);
        let parts = Parts { name, name_at, kind, is_definition, head, shape, item };
        recorder.declare(directive, parts);
        recorder.end(end);
    }

    /// Notes a directive with debug information for a linker. The cursor stands behind it.
    pub(super) fn record_debug(&mut self, start: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.debug.push(start..self.cursor.end());
        }
    }

    /// Notes a variable for a linker. `places`: where the statement's part before the first name
    /// is, and where the variable's name and dimensions are.
    pub(super) fn record_variable(
        &mut self,
        directive: Directive,
        name: &'a str,
        places: (Range<usize>, Range<usize>),
        kind: SymbolKind,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        let (head, shape) = places;
        let (name_at, item) = (shape.start, shape.start..self.cursor.end());
        let is_definition = directive.linkage != Linkage::Extern;
        let parts = Parts { name, name_at, kind, is_definition, head, shape, item };
        recorder.declare(directive, parts);
    }

    /// Notes the names in an initial value for a linker.
    pub(super) fn record_value(&mut self, initial: &Initial<'a>) {
        let Some(recorder) = &mut self.recorder else { return };
        for (name, position) in &initial.mentions {
            recorder.mention(None, Mention { name, position: *position, is_call: false });
        }
    }

    /// Reads the semicolon behind variables of the module.
    pub(super) fn end_of_variables(&mut self) -> Result<(), ParseError> {
        self.cursor.expect(';', "`;`")?;
        if let Some(recorder) = &mut self.recorder {
            recorder.end(self.cursor.end());
        }
        Ok(())
    }
}
