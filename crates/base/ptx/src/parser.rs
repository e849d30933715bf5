//! Parses PTX text into a module.
//!
//! A recursive descent over tokens reads one declaration at a time. Each instruction is compared
//! with the table in [`crate::forms`]. [`crate::layout`] assigns the addresses and sizes that
//! depend on the whole module, at the end.

mod constant;
mod cursor;
mod declare;
mod draft;
mod function;
mod initial;
mod names;
mod operand;
mod raw;
mod recorder;
mod scope;
mod shared;
mod special;
mod statement;

use std::collections::{HashMap, HashSet};

use cursor::Cursor;
use draft::{ModuleName, Parser};
use recorder::{Directive, Recorder};
use scope::Mention;

use crate::error::{ParseError, ParseErrorKind};
use crate::ir::Module;
use crate::layout;
use crate::lexer::{TextPosition, Token};
use crate::symbols::{Head, Linkage, Symbols};

/// Longest text that the parser reads. The largest modules of libraries have some 100 MiB.
const TEXT_BYTES_MAX: usize = 512 << 20;

/// Parses a module. `text` may end with NULs.
///
/// # Errors
/// Text that is not PTX, or that uses unsupported PTX, with the place in the text.
pub(crate) fn parse(text: &str) -> Result<Module, ParseError> {
    read(text, None)?.finish()
}

/// Parses a module for a linker. It may use variables of other modules.
///
/// # Errors
/// As [`parse`], but does not lay the module out.
pub(crate) fn symbols(text: &str) -> Result<Symbols, ParseError> {
    let parser = read(text, Some(Recorder::default()))?;
    parser.recorder.unwrap_or_default().finish(text)
}

fn read<'a>(text: &'a str, recorder: Option<Recorder<'a>>) -> Result<Parser<'a>, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TextPosition::default().error(ParseErrorKind::TooMany {
            what: "bytes of text",
            limit: TEXT_BYTES_MAX as u64,
        }));
    }
    let mut parser = Parser {
        cursor: Cursor::new(text)?,
        version: (0, 0),
        target: 0,
        names: HashMap::new(),
        globals: Vec::new(),
        shared: Vec::new(),
        functions: Vec::new(),
        entries: Vec::new(),
        mnemonics: HashMap::new(),
        aliases: Vec::new(),
        aliased: HashSet::new(),
        awaited: HashMap::new(),
        awaited_shared: HashSet::new(),
        recorder,
    };
    parser.head()?;
    while parser.cursor.token() != Token::End {
        parser.declaration()?;
    }
    Ok(parser)
}

impl<'a> Parser<'a> {
    /// Reads `.version`, `.target` and `.address_size`.
    fn head(&mut self) -> Result<(), ParseError> {
        let no_head = |cursor: &Cursor<'_>| cursor.error(ParseErrorKind::NoHead);
        let mut starts = vec![self.cursor.position().offset];
        if !self.cursor.accept_dotted("version")? {
            return Err(no_head(&self.cursor));
        }
        let start = self.cursor.position();
        self.cursor.advance()?;
        self.version = version(self.cursor.text_from(start))
            .ok_or_else(|| start.error(ParseErrorKind::NoHead))?;
        let mut ends = vec![self.cursor.end()];
        starts.push(self.cursor.position().offset);
        if !self.cursor.accept_dotted("target")? {
            return Err(no_head(&self.cursor));
        }
        let first = self.cursor.position().offset;
        let (mut target_at, mut suffix) = (first..first, 0);
        loop {
            let (word, position) = self.cursor.word("the name of a target")?;
            if let Some(target) = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_"))
            {
                let number = target.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
                target_at = position.offset..position.offset + word.len();
                suffix = match &target[number.len()..] {
                    "" => 0,
                    "f" => 1,
                    _ => 2,
                };
                self.target = number
                    .parse()
                    .map_err(|_| position.error(ParseErrorKind::Number(word.to_owned())))?;
            }
            if !self.cursor.accept(',')? {
                break;
            }
        }
        ends.push(self.cursor.end());
        let address_start = self.cursor.position().offset;
        if self.cursor.accept_dotted("address_size")? {
            let position = self.cursor.position();
            if constant::integer(&mut self.cursor)? != 64 {
                return Err(position.error(ParseErrorKind::AddressSize));
            }
            starts.push(address_start);
            ends.push(self.cursor.end());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.head = Head {
                version: self.version,
                target: (self.target, suffix),
                version_at: start.offset..ends[0],
                target_at,
                directives: starts.into_iter().zip(ends).map(|(start, end)| start..end).collect(),
            };
        }
        Ok(())
    }

    /// Returns a linking directive for the statement that starts with the next token.
    fn directive(&self, linkage: Linkage) -> Directive {
        Directive { linkage, start: self.cursor.position().offset }
    }

    /// Reads one declaration at module level.
    fn declaration(&mut self) -> Result<(), ParseError> {
        let mut directive = self.directive(Linkage::Local);
        loop {
            directive.linkage = match self.cursor.token() {
                Token::Dotted("extern") => Linkage::Extern,
                Token::Dotted("visible") => Linkage::Visible,
                Token::Dotted("weak") => Linkage::Weak,
                Token::Dotted("common") => Linkage::Common,
                _ => break,
            };
            self.cursor.advance()?;
        }
        match self.cursor.token() {
            Token::Dotted("entry") => self.function(true, directive),
            Token::Dotted("func") => self.function(false, directive),
            Token::Dotted("global" | "const") => self.global(directive),
            Token::Dotted("shared") => self.shared_variable(directive, None),
            Token::Dotted("alias") => self.alias(),
            Token::Dotted("file" | "loc") => self.debug_line(),
            Token::Dotted("section") => self.section(),
            Token::Dotted("pragma") => self.pragma(),
            Token::Sign('@') => self.cursor.skip_line(),
            Token::Dotted(word) => Err(self
                .cursor
                .error(ParseErrorKind::Directive(format!(".{}", cursor::shorten(word))))),
            _ => Err(self.cursor.unexpected("a declaration")),
        }
    }

    /// Reads `.alias a, b;`, which makes `a` another name of the function `b`.
    fn alias(&mut self) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        self.cursor.advance()?;
        let (name, name_position) = self.cursor.word("a name")?;
        self.cursor.expect(',', "`,`")?;
        let (of, position) = self.cursor.word("the name of a function")?;
        self.cursor.expect(';', "`;`")?;
        // The alias was declared as a function before, and earlier calls use its number.
        let from = self.known_function(name, name_position)?;
        let to = self.known_function(of, position)?;
        if self.functions[from.index()].body.is_some() || !self.aliased.insert(name) {
            return Err(name_position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        self.names.insert(name, ModuleName::Function(to));
        if from != to {
            // The function's body may come later.
            self.aliases.push((from, to));
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.alias(name, start..self.cursor.end());
            for (name_of, position) in [(name, name_position), (of, position)] {
                recorder.mention(Some(name), Mention { name: name_of, position, is_call: true });
            }
        }
        Ok(())
    }

    /// Skips a directive with debug information that takes the rest of its line.
    fn debug_line(&mut self) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        self.cursor.skip_line()?;
        self.record_debug(start);
        Ok(())
    }

    /// Skips `.section name { ... }`, which holds debug information.
    fn section(&mut self) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        while !self.cursor.accept('{')? {
            if self.cursor.token() == Token::End {
                return Err(self.cursor.unexpected("`{`"));
            }
            self.cursor.advance()?;
        }
        while !self.cursor.accept('}')? {
            if self.cursor.token() == Token::End {
                return Err(self.cursor.unexpected("`}`"));
            }
            self.cursor.advance()?;
        }
        self.record_debug(start);
        Ok(())
    }

    /// Skips `.pragma "...";`, which is a hint.
    fn pragma(&mut self) -> Result<(), ParseError> {
        self.cursor.advance()?;
        loop {
            match self.cursor.token() {
                Token::Text(_) => self.cursor.advance()?,
                _ => return Err(self.cursor.unexpected("a string")),
            };
            if !self.cursor.accept(',')? {
                return self.cursor.expect(';', "`;`");
            }
        }
    }

    /// Lays out the parsed module.
    fn finish(mut self) -> Result<Module, ParseError> {
        self.check_awaited()?;
        for (from, to) in std::mem::take(&mut self.aliases) {
            let mut function = self.functions[to.index()].clone();
            let alias = &mut self.functions[from.index()];
            function.name = std::mem::take(&mut alias.name);
            // A pointer that was taken before the `.alias` statement has the alias's own number.
            function.address_taken |= alias.address_taken;
            *alias = function;
        }
        let data = declare::data(&self.globals, &self.names)?;
        let mut module = Module {
            version: self.version,
            target: self.target,
            functions: self.functions,
            entries: Vec::new(),
            globals: data.globals,
            shared: self.shared,
            data: data.block,
        };
        for id in data.functions_taken {
            module.functions[id.index()].address_taken = true;
        }
        let entries: Vec<_> =
            self.entries.iter().map(|draft| (draft.function, draft.bounds)).collect();
        layout::lay_out(&mut module, &entries)?;
        Ok(module)
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
