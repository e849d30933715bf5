//! Turns text into tokens.

use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::hole::HoleKind;
use crate::limits::TEXT_BYTES_MAX;

/// Words with a fixed meaning.
pub(crate) const KEYWORDS: &[&str] = &[
    "SELECT", "ALL", "TOP", "POS", "FROM", "WHERE", "ORDER", "BY", "AND", "OR", "NOT", "LIKE",
    "IN", "BETWEEN", "HAS", "IS", "NULL", "TRUE", "FALSE", "ASC", "DESC",
];

/// Longer signs come first, so that `<=` is not read as `<` and `=`.
const SIGNS: &[&str] =
    &["==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ",", ";", "-"];

/// Conversions of `printf` that are holes. Longer ones come first.
const CONVERSIONS: &[(&str, HoleKind)] = &[
    ("lld", HoleKind::LongLong),
    ("llu", HoleKind::UnsignedLongLong),
    ("ld", HoleKind::Long),
    ("lu", HoleKind::UnsignedLong),
    ("zu", HoleKind::Size),
    ("d", HoleKind::Int),
    ("i", HoleKind::Int),
    ("u", HoleKind::Unsigned),
    ("x", HoleKind::Hex),
    ("s", HoleKind::Text),
    ("f", HoleKind::Float),
    ("g", HoleKind::Float),
];

/// The conversions, for messages.
const CONVERSION_NAMES: [&str; 12] =
    ["%d", "%i", "%u", "%ld", "%lu", "%zu", "%lld", "%llu", "%x", "%s", "%f", "%g"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Word,
    Int(u64),
    /// Digits with one or two points between them.
    Dotted,
    Quoted(String),
    Hole {
        index: usize,
        kind: HoleKind,
        quoted: bool,
    },
    Sign(&'static str),
    End,
}

/// The meaning of `%`. In a template it starts a hole, and doubled in quotes it is a percent sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percent {
    Plain,
    Template,
}

/// Whether `text` is one word and not a keyword, so that it needs no quotes.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && word_length(text) == text.len() && !is_keyword(text)
}

pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
}

/// Returns the tokens of `text` and its holes. The last token is the end.
pub(crate) fn tokens(text: &str, percent: Percent) -> Result<(Vec<Token>, Vec<HoleKind>), Error> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::new("", 0..0, ErrorKind::TooLong));
    }
    let mut lexer = Lexer { text, at: 0, percent, holes: Vec::new() };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let is_end = token.kind == TokenKind::End;
        tokens.push(token);
        if is_end {
            return Ok((tokens, lexer.holes));
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    percent: Percent,
    holes: Vec<HoleKind>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Token, Error> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        let start = self.at;
        let kind = self.kind()?;
        Ok(Token { kind, span: start..self.at })
    }

    fn kind(&mut self) -> Result<TokenKind, Error> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(TokenKind::End) };
        match first {
            '0'..='9' => self.number(),
            '\'' | '"' => self.quoted(first),
            '%' => self.hole(),
            _ if is_word_start(first) => {
                self.at += word_length(rest);
                Ok(TokenKind::Word)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Ok(TokenKind::Sign(sign))
                }
                None => Err(self.error(first.len_utf8(), ErrorKind::Character(first))),
            },
        }
    }

    fn number(&mut self) -> Result<TokenKind, Error> {
        let rest = self.rest();
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let count = hex.len() - hex.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
            return match u64::from_str_radix(hex.get(..count).unwrap_or_default(), 16) {
                Ok(number) => {
                    self.at += 2 + count;
                    Ok(TokenKind::Int(number))
                }
                Err(_) => Err(self.number_error(2 + count)),
            };
        }
        let mut length = digits(rest);
        let mut points = 0;
        while let Some(more) = rest.get(length..).and_then(|rest| rest.strip_prefix('.')) {
            match digits(more) {
                0 => break,
                count => length += 1 + count,
            }
            points += 1;
        }
        let number = rest.get(..length).unwrap_or_default();
        let kind = match points {
            0 => number.parse().map(TokenKind::Int).map_err(|_| self.number_error(length))?,
            1 | 2 => TokenKind::Dotted,
            _ => return Err(self.number_error(length)),
        };
        self.at += length;
        Ok(kind)
    }

    fn quoted(&mut self, quote: char) -> Result<TokenKind, Error> {
        let start = self.at;
        let mut text = String::new();
        let mut is_hole = None;
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(c) = rest.chars().next() else {
                self.at = start;
                return Err(self.error(1, ErrorKind::Unclosed));
            };
            let mut chars = rest.chars().skip(1);
            self.at += c.len_utf8();
            if c == quote {
                // A doubled quote stands for one.
                if chars.next() != Some(quote) {
                    break;
                }
                self.at += 1;
            } else if c == '%' && self.percent == Percent::Template {
                match chars.next() {
                    Some('%') => self.at += 1,
                    _ => is_hole = is_hole.or(Some(self.at - 1)),
                }
            }
            text.push(c);
        }
        let Some(at) = is_hole else { return Ok(TokenKind::Quoted(text)) };
        // The length distinguishes '%s' from '%%s', whose first percent sign was removed.
        if text != "%s" || self.at - start != 4 {
            self.at = at;
            return Err(self.error(1, ErrorKind::HoleInQuotes));
        }
        Ok(self.add_hole(HoleKind::Text, true))
    }

    fn hole(&mut self) -> Result<TokenKind, Error> {
        let rest = self.rest();
        let after = rest.get(1..).unwrap_or_default();
        let found = CONVERSIONS.iter().find(|(letters, _)| after.starts_with(letters));
        match (self.percent, found) {
            (Percent::Plain, found) => {
                let length = 1 + found.map_or(0, |(letters, _)| letters.len());
                Err(self.error(length, ErrorKind::NotATemplate))
            }
            (Percent::Template, Some((letters, kind))) => {
                self.at += 1 + letters.len();
                Ok(self.add_hole(*kind, false))
            }
            (Percent::Template, None) => {
                let length = 1 + after.chars().next().map_or(0, char::len_utf8);
                Err(self.error(length, ErrorKind::Conversion).expecting(CONVERSION_NAMES))
            }
        }
    }

    fn add_hole(&mut self, kind: HoleKind, quoted: bool) -> TokenKind {
        self.holes.push(kind);
        TokenKind::Hole { index: self.holes.len() - 1, kind, quoted }
    }

    fn error(&self, length: usize, kind: ErrorKind) -> Error {
        Error::new(self.text, self.at..self.at + length, kind)
    }

    fn number_error(&self, length: usize) -> Error {
        let number = self.rest().get(..length).unwrap_or_default().to_owned();
        self.error(length, ErrorKind::Number(number))
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Returns the length of the word at the start of `text` in bytes. A word has letters, digits and
/// underscores. Hyphens and points before a letter or digit belong to it as well, for names of hosts
/// and kernels.
fn word_length(text: &str) -> usize {
    if !text.chars().next().is_some_and(is_word_start) {
        return 0;
    }
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let goes_on = match c {
            '-' | '.' => chars.peek().is_some_and(|(_, next)| next.is_alphanumeric()),
            _ => c.is_alphanumeric() || c == '_',
        };
        if !goes_on {
            return at;
        }
    }
    text.len()
}
