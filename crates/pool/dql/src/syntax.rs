//! Parses tokens into a tree. `check` finds the meaning of the words.

use crate::error::{Error, ErrorKind};
use crate::hole::HoleKind;
use crate::lex::{self, Percent, Token, TokenKind};
use crate::limits::DEPTH_MAX;
use crate::suggest;
use crate::tree::{
    AttributeName, Compare, Condition, Operation, OrderKey, SelectClause, Span, Tree, UNITS, Unit,
    WrittenNodes, WrittenValue, WrittenValueKind,
};

const COMPARES: &[(&str, Compare)] = &[
    ("=", Compare::Equal),
    ("==", Compare::Equal),
    ("!=", Compare::NotEqual),
    ("<>", Compare::NotEqual),
    ("<", Compare::Less),
    ("<=", Compare::LessOrEqual),
    (">", Compare::Greater),
    (">=", Compare::GreaterOrEqual),
];

const AN_ATTRIBUTE: &str = "an attribute";
const A_VALUE: &str = "a value";
const A_WHOLE_NUMBER: &str = "a whole number";
const THE_END: &str = "the end of the query";
const OPERATORS: [&str; 12] =
    ["=", "!=", "<", "<=", ">", ">=", "LIKE", "IN", "BETWEEN", "HAS", "IS", "NOT"];

/// Parses `text`, and returns the tree and its holes.
pub(crate) fn parse(text: &str, percent: Percent) -> Result<(Tree, Vec<HoleKind>), Error> {
    let (tokens, holes) = lex::tokens(text, percent)?;
    let tree = Parser { text, tokens, at: 0, depth: 0 }.query()?;
    Ok((tree, holes))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn query(mut self) -> Result<Tree, Error> {
        let mut open = 0;
        while self.takes_sign("(") {
            self.enter()?;
            open += 1;
        }
        self.keyword("SELECT")?;
        let mut next = vec!["ALL", "TOP", "POS", "FROM", "WHERE", "ORDER"];
        let selection = self.selection()?;
        if !matches!(selection, SelectClause::All) {
            next.drain(..3);
        }
        let mut tree = Tree { selection, nodes: Vec::new(), filter: None, order: Vec::new() };
        if self.takes("FROM") {
            self.keyword("NODE")?;
            tree.nodes = self.list(Self::node)?;
            next = vec![",", "WHERE", "ORDER"];
        }
        if self.takes("WHERE") {
            tree.filter = Some(self.any()?);
            next = vec!["AND", "OR", "ORDER"];
        }
        if self.takes("ORDER") {
            self.keyword("BY")?;
            tree.order = self.list(Self::key)?;
            next = vec![",", "ASC", "DESC"];
        }
        for _ in 0..open {
            if !self.takes_sign(")") {
                next.push(")");
                return Err(self.unexpected(next));
            }
        }
        if !self.takes_sign(";") {
            next.push(";");
        } else {
            next.clear();
        }
        next.push(THE_END);
        if self.peek().kind == TokenKind::End { Ok(tree) } else { Err(self.unexpected(next)) }
    }

    fn selection(&mut self) -> Result<SelectClause, Error> {
        if self.takes("TOP") {
            return self.count().map(SelectClause::Top);
        }
        if self.takes("POS") {
            return self.count().map(SelectClause::Position);
        }
        // ALL may be left out.
        self.takes("ALL");
        Ok(SelectClause::All)
    }

    /// Parses a whole number or a hole for one.
    fn count(&mut self) -> Result<WrittenValue, Error> {
        let token = self.peek().clone();
        let kind = match token.kind {
            TokenKind::Int(number) => WrittenValueKind::Int(number),
            TokenKind::Hole { index, kind, quoted } if kind.is_integer() => {
                WrittenValueKind::Hole { index, kind, quoted }
            }
            _ => return Err(self.unexpected([A_WHOLE_NUMBER])),
        };
        self.at += 1;
        Ok(WrittenValue { kind, negative: false, unit: None, span: token.span })
    }

    fn node(&mut self) -> Result<WrittenNodes, Error> {
        const EXPECTED: [&str; 2] = ["the rank of a node", "a host name"];
        let token = self.peek().clone();
        match token.kind {
            TokenKind::Int(_) => {}
            TokenKind::Hole { kind, .. } if kind.is_integer() => {}
            TokenKind::Word if lex::is_keyword(self.word()) => {
                return Err(self.unexpected(EXPECTED));
            }
            TokenKind::Word | TokenKind::Quoted(_) => return self.value().map(WrittenNodes::One),
            TokenKind::Hole { kind: HoleKind::Text, .. } => {
                return self.value().map(WrittenNodes::One);
            }
            _ => return Err(self.unexpected(EXPECTED)),
        }
        let first = self.count()?;
        if self.takes_sign("-") {
            Ok(WrittenNodes::Range(first, self.count()?))
        } else {
            Ok(WrittenNodes::One(first))
        }
    }

    fn key(&mut self) -> Result<OrderKey, Error> {
        let name = self.name(&[AN_ATTRIBUTE])?;
        let descending = self.takes("DESC");
        if !descending {
            self.takes("ASC");
        }
        Ok(OrderKey { name, descending })
    }

    fn any(&mut self) -> Result<Condition, Error> {
        let mut terms = vec![self.all()?];
        while self.takes("OR") {
            terms.push(self.all()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Condition::Any(terms) })
    }

    fn all(&mut self) -> Result<Condition, Error> {
        let mut factors = vec![self.factor()?];
        while self.takes("AND") {
            factors.push(self.factor()?);
        }
        Ok(if factors.len() == 1 { factors.remove(0) } else { Condition::All(factors) })
    }

    fn factor(&mut self) -> Result<Condition, Error> {
        if self.takes("NOT") {
            self.enter()?;
            let factor = self.factor()?;
            self.depth -= 1;
            return Ok(Condition::Not(Box::new(factor)));
        }
        if self.takes_sign("(") {
            self.enter()?;
            let condition = self.any()?;
            if !self.takes_sign(")") {
                return Err(self.unexpected(["AND", "OR", ")"]));
            }
            self.depth -= 1;
            return Ok(condition);
        }
        self.test()
    }

    fn test(&mut self) -> Result<Condition, Error> {
        let name = self.name(&[AN_ATTRIBUTE, "NOT", "("])?;
        let start = self.peek().span.clone();
        if let TokenKind::Sign(sign) = self.peek().kind
            && let Some((_, compare)) = COMPARES.iter().find(|(text, _)| *text == sign)
        {
            self.at += 1;
            let operation = Operation::Compare(*compare, start, self.value()?);
            return Ok(Condition::Test(name, Box::new(operation)));
        }
        if self.takes("IS") {
            let negated = self.takes("NOT");
            if !self.takes("NULL") {
                return Err(self.unexpected(if negated {
                    vec!["NULL"]
                } else {
                    vec!["NULL", "NOT"]
                }));
            }
            return Ok(not_if(negated, Condition::Test(name, Box::new(Operation::Null))));
        }
        let negated = self.takes("NOT");
        let operation = if self.takes("LIKE") {
            Operation::Like(start, self.value()?)
        } else if self.takes("IN") {
            self.sign("(")?;
            let values = self.list(Self::value)?;
            if !self.takes_sign(")") {
                return Err(self.unexpected([",", ")"]));
            }
            Operation::In(start, values)
        } else if self.takes("BETWEEN") {
            let low = self.value()?;
            self.keyword("AND")?;
            Operation::Between(start, low, self.value()?)
        } else if self.takes("HAS") {
            Operation::Has(start, self.value()?)
        } else if negated {
            return Err(self.unexpected(["LIKE", "IN", "BETWEEN", "HAS"]));
        } else if self.may_follow_a_test() {
            Operation::Is(name.span.clone())
        } else {
            return Err(self.unexpected(OPERATORS));
        };
        Ok(not_if(negated, Condition::Test(name, Box::new(operation))))
    }

    fn may_follow_a_test(&self) -> bool {
        match self.peek().kind {
            TokenKind::End | TokenKind::Sign(")" | ";") => true,
            TokenKind::Word => {
                ["AND", "OR", "ORDER"].iter().any(|it| it.eq_ignore_ascii_case(self.word()))
            }
            _ => false,
        }
    }

    fn name(&mut self, expected: &[&'static str]) -> Result<AttributeName, Error> {
        let token = self.peek().clone();
        if token.kind != TokenKind::Word || lex::is_keyword(self.word()) {
            return Err(self.unexpected(expected.iter().copied()));
        }
        let name = self.word().to_owned();
        self.at += 1;
        let mut index = None;
        if self.takes_sign("[") {
            let Token { kind: TokenKind::Int(number), span } = self.peek().clone() else {
                return Err(self.unexpected([A_WHOLE_NUMBER]));
            };
            self.at += 1;
            self.sign("]")?;
            index = Some((number, span));
        }
        Ok(AttributeName { name, span: token.span, index })
    }

    fn value(&mut self) -> Result<WrittenValue, Error> {
        let start = self.peek().span.start;
        let negative = self.takes_sign("-");
        let token = self.peek().clone();
        let written = |kind, end| WrittenValue { kind, negative, unit: None, span: start..end };
        let kind = match token.kind {
            TokenKind::Int(number) => WrittenValueKind::Int(number),
            TokenKind::Dotted => WrittenValueKind::Dotted(self.word().to_owned()),
            TokenKind::Hole { index, kind, quoted } if !(negative || kind == HoleKind::Text) => {
                WrittenValueKind::Hole { index, kind, quoted }
            }
            _ if negative => return Err(self.unexpected(["a number"])),
            TokenKind::Hole { index, kind, quoted } => {
                self.at += 1;
                return Ok(written(WrittenValueKind::Hole { index, kind, quoted }, token.span.end));
            }
            TokenKind::Quoted(text) => {
                self.at += 1;
                return Ok(written(WrittenValueKind::Text { text, quoted: true }, token.span.end));
            }
            TokenKind::Word => {
                let word = self.word();
                let kind = match word {
                    _ if word.eq_ignore_ascii_case("TRUE") => WrittenValueKind::Bool(true),
                    _ if word.eq_ignore_ascii_case("FALSE") => WrittenValueKind::Bool(false),
                    _ if lex::is_keyword(word) => return Err(self.unexpected([A_VALUE])),
                    _ => WrittenValueKind::Text { text: word.to_owned(), quoted: false },
                };
                self.at += 1;
                return Ok(written(kind, token.span.end));
            }
            _ => return Err(self.unexpected([A_VALUE])),
        };
        self.at += 1;
        let mut value = written(kind, token.span.end);
        value.unit = self.unit(value.span.end)?;
        if let Some((_, span)) = &value.unit {
            value.span.end = span.end;
        }
        Ok(value)
    }

    /// Parses the unit after a number that ends at `end`. A word that touches the number must be a
    /// unit.
    fn unit(&mut self, end: usize) -> Result<Option<(&'static Unit, Span)>, Error> {
        let token = self.peek().clone();
        if token.kind != TokenKind::Word {
            return Ok(None);
        }
        let word = self.word();
        if let Some(unit) = UNITS.iter().find(|unit| unit.name.eq_ignore_ascii_case(word)) {
            self.at += 1;
            return Ok(Some((unit, token.span)));
        }
        if token.span.start > end {
            return Ok(None);
        }
        Err(self
            .error(ErrorKind::Unit(word.to_owned()))
            .expecting(UNITS.iter().map(|unit| unit.name)))
    }

    fn list<T>(&mut self, one: fn(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let mut list = vec![one(self)?];
        while self.takes_sign(",") {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth <= DEPTH_MAX {
            return Ok(());
        }
        self.at = self.at.saturating_sub(1);
        Err(self.error(ErrorKind::TooDeep))
    }

    fn peek(&self) -> &Token {
        // The last token is the end, and the parser never goes beyond it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    /// Returns the text of the next token.
    fn word(&self) -> &str {
        self.text.get(self.peek().span.clone()).unwrap_or_default()
    }

    fn takes(&mut self, keyword: &str) -> bool {
        let found =
            self.peek().kind == TokenKind::Word && self.word().eq_ignore_ascii_case(keyword);
        self.at += usize::from(found);
        found
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek().kind, TokenKind::Sign(found) if found == sign);
        self.at += usize::from(found);
        found
    }

    fn keyword(&mut self, keyword: &'static str) -> Result<(), Error> {
        if self.takes(keyword) { Ok(()) } else { Err(self.unexpected([keyword])) }
    }

    fn sign(&mut self, sign: &'static str) -> Result<(), Error> {
        if self.takes_sign(sign) { Ok(()) } else { Err(self.unexpected([sign])) }
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.text, self.peek().span.clone(), kind)
    }

    fn unexpected(&self, expected: impl IntoIterator<Item = &'static str>) -> Error {
        let expected: Vec<_> = expected.into_iter().collect();
        let is_word = self.peek().kind == TokenKind::Word;
        let keywords =
            expected.iter().copied().filter(|it| it.starts_with(|c: char| c.is_ascii_uppercase()));
        let suggestion = is_word.then(|| suggest::nearest(self.word(), keywords)).flatten();
        self.error(ErrorKind::Unexpected(self.word().to_owned()))
            .expecting(expected)
            .suggesting(suggestion)
    }
}

fn not_if(negated: bool, condition: Condition) -> Condition {
    if negated { Condition::Not(Box::new(condition)) } else { condition }
}
