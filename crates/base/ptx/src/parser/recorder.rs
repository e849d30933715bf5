//! Notes for a linker what the parser reads: names of the module, and where they are declared and
//! used.

use std::collections::HashMap;
use std::ops::Range;

use super::scope::Mention;
use crate::error::{ParseError, ParseErrorKind};
use crate::symbols::{Declaration, Head, Linkage, Symbol, SymbolKind, Symbols, Use};

/// The linking directive of a declaration, and where its statement starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directive {
    pub(super) linkage: Linkage,
    pub(super) start: usize,
}

/// The parts of a declaration, see [`Declaration`].
pub(super) struct Parts<'a> {
    pub(super) name: &'a str,
    pub(super) name_at: usize,
    pub(super) kind: SymbolKind,
    pub(super) is_definition: bool,
    pub(super) head: Range<usize>,
    pub(super) shape: Range<usize>,
    pub(super) item: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Recorder<'a> {
    pub(super) head: Head,
    /// Places of the directives with debug information.
    pub(super) debug: Vec<Range<usize>>,
    list: Vec<Symbol>,
    index: HashMap<&'a str, usize>,
    /// Uses with the function that contains them.
    mentions: Vec<(Option<&'a str>, Mention<'a>)>,
    /// The declarations of the statement that is being read: indices of symbol and declaration.
    open: Vec<(usize, usize)>,
}

impl<'a> Recorder<'a> {
    /// Notes one name of a statement.
    pub(super) fn declare(&mut self, directive: Directive, parts: Parts<'a>) {
        let Parts { name, name_at, kind, is_definition, head, shape, item } = parts;
        let symbol = *self.index.entry(name).or_insert_with(|| {
            let name = name_at..name_at + name.len();
            self.list.push(Symbol { name, declarations: Vec::new() });
            self.list.len() - 1
        });
        let previous = self.open.last().map(|(symbol, declaration)| {
            let previous = &mut self.list[*symbol].declarations[*declaration];
            previous.next = name_at;
            previous.item.end
        });
        let previous = previous.unwrap_or(name_at);
        let declarations = &mut self.list[symbol].declarations;
        self.open.push((symbol, declarations.len()));
        declarations.push(Declaration {
            linkage: directive.linkage,
            kind,
            is_definition,
            name_at,
            whole: directive.start..directive.start,
            head,
            shape,
            item,
            place: (self.open.len() - 1, 0),
            previous,
            next: name_at,
            alias: None,
        });
    }

    /// Notes where the statement ends.
    pub(super) fn end(&mut self, end: usize) {
        let count = self.open.len();
        for (symbol, declaration) in self.open.drain(..) {
            let declaration = &mut self.list[symbol].declarations[declaration];
            declaration.whole.end = end;
            declaration.place.1 = count;
        }
    }

    /// Notes that an `.alias` statement defines a name.
    pub(super) fn alias(&mut self, name: &str, statement: Range<usize>) {
        let symbol = self.index.get(name).and_then(|symbol| self.list.get_mut(*symbol));
        if let Some(declaration) = symbol.and_then(|symbol| symbol.declarations.last_mut()) {
            declaration.is_definition = true;
            declaration.alias = Some(statement);
        }
    }

    /// Notes a use, inside a function or in an initial value.
    pub(super) fn mention(&mut self, by: Option<&'a str>, mention: Mention<'a>) {
        self.mentions.push((by, mention));
    }

    /// Returns what was noted about a text.
    ///
    /// # Errors
    /// An initial value has a name that is not declared.
    pub(super) fn finish(self, text: &str) -> Result<Symbols, ParseError> {
        let of = |name: &str| self.index.get(name).copied();
        let is_unknown = |(by, mention): &&(Option<&str>, Mention<'a>)| {
            by.is_none() && of(mention.name).is_none()
        };
        if let Some((_, mention)) = self.mentions.iter().find(is_unknown) {
            let kind = ParseErrorKind::UnknownName(mention.name.to_owned());
            return Err(mention.position.error(kind));
        }
        let uses = self.mentions.iter().filter_map(|(by, mention)| {
            // The parser declares a few names itself. They belong to no module.
            let symbol = of(mention.name)?;
            let (offset, is_call) = (mention.position.offset, mention.is_call);
            // A linker replaces the name there, and must replace nothing else.
            let is_there = text.get(offset..).is_some_and(|rest| rest.starts_with(mention.name));
            debug_assert!(is_there, "{} is not at {offset}", mention.name);
            if !is_there {
                return None;
            }
            Some(Use { offset, symbol, by: by.and_then(of), is_call })
        });
        let mut uses: Vec<Use> = uses.collect();
        // An instruction that was compared with several forms has mentioned its operands often.
        uses.sort_by_key(|it| it.offset);
        uses.dedup_by_key(|it| it.offset);
        Ok(Symbols { head: self.head, list: self.list, uses, debug: self.debug })
    }
}
