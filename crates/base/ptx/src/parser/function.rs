use super::declare::NamedFormal;
use super::draft::{EntryDraft, FunctionDraft, ModuleName, Parser};
use super::recorder::Directive;
use super::scope::{FunctionScope, LabelKind, Mention};
use super::{constant, cursor};
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{BLOCK_THREADS_MAX, Function, FunctionId, Signature, Space, Statement, Symbol};
use crate::layout::LaunchBounds;
use crate::lexer::{TextPosition, Token};
use crate::symbols::{FormalShape, Linkage, SymbolKind};

/// Largest number of statements of a function. Compilers stay far below it; it bounds the memory
/// that a hostile text can take.
const STATEMENTS_MAX: usize = 1 << 23;

impl<'a> Parser<'a> {
    /// Reads `.entry name (...) { ... }` or `.func (...) name (...) { ... }`, or a declaration
    /// without a body.
    pub(super) fn function(
        &mut self,
        is_entry: bool,
        directive: Directive,
    ) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        self.cursor.advance()?;
        let mut draft =
            FunctionDraft { names: FunctionScope::new(), body: Vec::new(), refusal: None };
        let mut returns = Vec::new();
        while matches!(self.cursor.token(), Token::Dotted("attribute")) {
            self.skip_directive()?;
        }
        if !is_entry && self.cursor.accept('(')? {
            returns = self.formals(Some(&mut draft.names))?;
        }
        let (name, position) = self.cursor.word("the name of a function")?;
        let params = if self.cursor.accept('(')? {
            self.formals(Some(&mut draft.names))?
        } else {
            Vec::new()
        };
        let (bounds, no_return) = self.directives()?;
        let id = self.declare_function(name, is_entry, position)?;
        let head = start..self.cursor.end();
        let has_body = self.cursor.accept('{')?;
        if has_body && self.functions[id.index()].body.is_some() {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        if has_body {
            declare_formals(&mut draft.names, &returns, Symbol::Return)?;
            declare_formals(&mut draft.names, &params, Symbol::Param)?;
            self.body(&mut draft)?;
        } else {
            self.cursor.expect(';', "`;` or `{`")?;
        }
        self.mentioned(name, draft.names.take_mentions());
        let kind = function_kind(is_entry, &returns, &params);
        self.record_function(directive, (name, position), head, kind, has_body);
        let known = &mut self.functions[id.index()];
        if has_body || known.body.is_none() {
            *known = Function {
                name: name.to_owned(),
                is_entry,
                returns: returns.into_iter().map(|named| named.formal).collect(),
                params: params.into_iter().map(|named| named.formal).collect(),
                registers: draft.names.registers,
                variables: draft.names.variables,
                labels: draft.names.labels,
                body: has_body.then_some(draft.body),
                frame_bytes: 0,
                frame_align: 1,
                address_taken: known.address_taken,
                no_return,
                may_fail: false,
                line: position.line,
                refusal: draft.refusal,
            };
        }
        if is_entry && has_body {
            self.entries.push(EntryDraft { function: id, bounds });
        }
        Ok(())
    }

    /// Returns the number of a function, which an earlier declaration or call may have assigned.
    fn declare_function(
        &mut self,
        name: &'a str,
        is_entry: bool,
        position: TextPosition,
    ) -> Result<FunctionId, ParseError> {
        if let Some(known) = self.names.get(name) {
            return match known {
                ModuleName::Function(id) if self.functions[id.index()].is_entry == is_entry => {
                    Ok(*id)
                }
                _ => Err(position.error(ParseErrorKind::Duplicate(name.to_owned()))),
            };
        }
        let id = FunctionId(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        self.declare(name, ModuleName::Function(id), position)?;
        self.functions.push(Function {
            name: name.to_owned(),
            is_entry,
            returns: Vec::new(),
            params: Vec::new(),
            registers: Vec::new(),
            variables: Vec::new(),
            labels: Vec::new(),
            body: None,
            frame_bytes: 0,
            frame_align: 1,
            address_taken: false,
            no_return: false,
            may_fail: false,
            line: position.line,
            refusal: None,
        });
        Ok(id)
    }

    /// Reads the directives between the parameters and the body.
    fn directives(&mut self) -> Result<(LaunchBounds, bool), ParseError> {
        let mut bounds = LaunchBounds::default();
        let mut no_return = false;
        while let Token::Dotted(word) = self.cursor.token() {
            match word {
                "maxntid" => {
                    let product = self
                        .extents()?
                        .iter()
                        .try_fold(1u32, |product, extent| product.checked_mul(*extent));
                    bounds.max_threads = Some(product.unwrap_or(u32::MAX));
                }
                "reqntid" => {
                    let position = self.cursor.position();
                    let sizes = self.extents()?;
                    let product =
                        sizes.iter().try_fold(1u32, |product, extent| product.checked_mul(*extent));
                    if product.is_none_or(|product| product > BLOCK_THREADS_MAX) {
                        let limit = u64::from(BLOCK_THREADS_MAX);
                        return Err(position
                            .error(ParseErrorKind::TooMany { what: "threads in a block", limit }));
                    }
                    if product == Some(0) {
                        return Err(position.error(ParseErrorKind::Number(String::from("0"))));
                    }
                    bounds.required = Some(sizes);
                }
                "noreturn" => {
                    self.cursor.advance()?;
                    no_return = true;
                }
                "pragma" => self.pragma()?,
                // These set the number of blocks or registers of a real multiprocessor, which has
                // no effect here.
                "minnctapersm"
                | "maxnctapersm"
                | "maxnreg"
                | "maxclusterrank"
                | "reqnctapercluster"
                | "explicitcluster"
                | "blocksareclusters"
                | "abi_preserve"
                | "abi_preserve_control"
                | "attribute" => self.skip_directive()?,
                _ => {
                    return Err(self
                        .cursor
                        .error(ParseErrorKind::Directive(format!(".{}", cursor::shorten(word)))));
                }
            }
        }
        Ok((bounds, no_return))
    }

    /// Reads one to three numbers, as after `.maxntid`; missing ones are 1.
    fn extents(&mut self) -> Result<[u32; 3], ParseError> {
        self.cursor.advance()?;
        let mut extents = [1; 3];
        for extent in &mut extents {
            let position = self.cursor.position();
            let number = constant::integer(&mut self.cursor)?;
            *extent = u32::try_from(number)
                .map_err(|_| position.error(ParseErrorKind::Number(number.to_string())))?;
            if !self.cursor.accept(',')? {
                break;
            }
        }
        Ok(extents)
    }

    /// Skips a directive and its arguments: numbers with commas, or text in parentheses.
    fn skip_directive(&mut self) -> Result<(), ParseError> {
        self.cursor.advance()?;
        if self.cursor.accept('(')? {
            while !self.cursor.accept(')')? {
                if self.cursor.token() == Token::End {
                    return Err(self.cursor.unexpected("`)`"));
                }
                self.cursor.advance()?;
            }
            return Ok(());
        }
        while matches!(self.cursor.token(), Token::Integer(_))
            || self.cursor.token() == Token::Sign(',')
        {
            self.cursor.advance()?;
        }
        Ok(())
    }

    /// Reads statements up to the brace that closes the body. The opening brace has been consumed.
    fn body(&mut self, draft: &mut FunctionDraft<'a>) -> Result<(), ParseError> {
        loop {
            if draft.body.len() >= STATEMENTS_MAX {
                let limit = STATEMENTS_MAX as u64;
                return Err(self
                    .cursor
                    .error(ParseErrorKind::TooMany { what: "statements in a function", limit }));
            }
            let position = self.cursor.position();
            match self.cursor.token() {
                Token::Sign('}') => {
                    self.cursor.advance()?;
                    if !draft.names.close() {
                        break;
                    }
                }
                Token::Sign('{') => {
                    self.cursor.advance()?;
                    draft.names.open(position)?;
                }
                Token::Sign(';') => _ = self.cursor.advance()?,
                Token::Dotted(word) => self.body_directive(word, draft)?,
                Token::Word(_) | Token::Sign('@') => self.statement_or_refusal(draft)?,
                _ => return Err(self.cursor.unexpected("a statement or `}`")),
            }
        }
        draft.names.resolve(&mut draft.body)
    }

    /// Reads a label or an instruction. Skips an instruction that is not supported: it refuses the
    /// function, and not the module.
    fn statement_or_refusal(&mut self, draft: &mut FunctionDraft<'a>) -> Result<(), ParseError> {
        let start = self.cursor.clone();
        match self.statement(draft) {
            Err(error) if error.kind.is_of_an_instruction() => {
                self.cursor = start.clone();
                self.cursor.skip_statement()?;
                self.mention_skipped(start, &mut draft.names)?;
                draft.refusal.get_or_insert(error);
                Ok(())
            }
            read => read,
        }
    }

    fn body_directive(
        &mut self,
        word: &str,
        draft: &mut FunctionDraft<'a>,
    ) -> Result<(), ParseError> {
        match word {
            "reg" => self.register(&mut draft.names),
            "local" => self.local_variable(Space::Local, &mut draft.names),
            "param" => self.local_variable(Space::Param, &mut draft.names),
            "shared" => {
                self.shared_variable(self.directive(Linkage::Local), Some(&mut draft.names))
            }
            "extern" => {
                let directive = self.directive(Linkage::Extern);
                self.cursor.advance()?;
                self.shared_variable(directive, Some(&mut draft.names))
            }
            "global" | "const" => self.global(self.directive(Linkage::Local)),
            "loc" | "file" => self.debug_line(),
            "pragma" => self.pragma(),
            "section" => self.section(),
            _ => Err(self
                .cursor
                .error(ParseErrorKind::Directive(format!(".{}", cursor::shorten(word))))),
        }
    }

    /// Reads the text behind a label: nothing, or a list that the label names.
    pub(super) fn label(
        &mut self,
        name: &'a str,
        position: TextPosition,
        draft: &mut FunctionDraft<'a>,
    ) -> Result<(), ParseError> {
        let kind = match self.cursor.token() {
            Token::Dotted("branchtargets") => {
                self.cursor.advance()?;
                LabelKind::Branches(self.list("a label")?)
            }
            Token::Dotted("calltargets") => {
                self.cursor.advance()?;
                let names = self.list("the name of a function")?;
                let mention = |&(name, position)| Mention { name, position, is_call: false };
                draft.names.mentions.extend(names.iter().map(mention));
                LabelKind::Calls(
                    names
                        .into_iter()
                        .map(|(name, position)| self.known_function(name, position))
                        .collect::<Result<_, _>>()?,
                )
            }
            Token::Dotted("callprototype") => {
                self.cursor.advance()?;
                LabelKind::Prototype(std::sync::Arc::new(self.prototype()?))
            }
            _ => {
                let id = draft.names.declare_label(name, draft.body.len(), position)?;
                draft.body.push(Statement::Label(id));
                return Ok(());
            }
        };
        draft.names.declare_label_kind(name, kind, position)
    }

    /// Reads a list of names: `a, b, c;`
    fn list(&mut self, expected: &'static str) -> Result<Vec<(&'a str, TextPosition)>, ParseError> {
        let mut names = Vec::new();
        loop {
            names.push(self.cursor.word(expected)?);
            if !self.cursor.accept(',')? {
                self.cursor.expect(';', "`;`")?;
                return Ok(names);
            }
        }
    }

    /// Returns the function with that name, which must be declared.
    pub(super) fn known_function(
        &self,
        name: &str,
        position: TextPosition,
    ) -> Result<FunctionId, ParseError> {
        match self.names.get(name) {
            Some(ModuleName::Function(id)) => Ok(*id),
            Some(_) => Err(position
                .error(ParseErrorKind::WrongName { name: name.to_owned(), needed: "a function" })),
            None => Err(position.error(ParseErrorKind::UnknownName(name.to_owned()))),
        }
    }

    /// Reads `(.param .b32 _) _ (.param .b64 _);`
    fn prototype(&mut self) -> Result<Signature, ParseError> {
        let mut returns = Vec::new();
        if self.cursor.accept('(')? {
            returns = self.formals(None)?;
        }
        self.cursor.word("`_`")?;
        let params = if self.cursor.accept('(')? { self.formals(None)? } else { Vec::new() };
        if let Token::Dotted("noreturn") = self.cursor.token() {
            self.cursor.advance()?;
        }
        while let Token::Dotted("abi_preserve" | "abi_preserve_control") = self.cursor.token() {
            self.skip_directive()?;
        }
        self.cursor.expect(';', "`;`")?;
        let formals =
            |list: Vec<NamedFormal<'a>>| list.into_iter().map(|named| named.formal).collect();
        Ok(Signature { returns: formals(returns), params: formals(params) })
    }
}

fn function_kind(
    is_entry: bool,
    returns: &[NamedFormal<'_>],
    params: &[NamedFormal<'_>],
) -> SymbolKind {
    let shapes = |formals: &[NamedFormal<'_>]| {
        formals.iter().map(|named| FormalShape::of(&named.formal)).collect()
    };
    SymbolKind::Function { is_entry, returns: shapes(returns), params: shapes(params) }
}

/// Declares the names of parameters in memory. Those in registers are already declared.
fn declare_formals<'a>(
    names: &mut FunctionScope<'a>,
    formals: &[NamedFormal<'a>],
    symbol: impl Fn(u32) -> Symbol,
) -> Result<(), ParseError> {
    for (index, NamedFormal { formal, name, position }) in (0u32..).zip(formals) {
        if formal.register.is_none() && !formal.name.is_empty() {
            names.declare_symbol(name, symbol(index), *position)?;
        }
    }
    Ok(())
}
