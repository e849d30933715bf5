//! Errors of queries, with their places.

use std::fmt;
use std::ops::Range;

use crate::limits::{DEPTH_MAX, EXCERPT_CHARS_MAX, TEXT_BYTES_MAX};

/// An error of a query: what is wrong, where, and what could be written instead. Its `Display` text
/// has several lines: the message, the line of the query with carets below the place, and what was
/// expected. [`Error::summary`] is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Report>);

/// What an [`Error`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    kind: ErrorKind,
    span: Range<usize>,
    line: usize,
    column: usize,
    excerpt: String,
    /// Position in the excerpt, in characters.
    caret: usize,
    width: usize,
    expected: Vec<&'static str>,
    suggestion: Option<&'static str>,
}

/// The kind of an error in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is longer than [`TEXT_BYTES_MAX`].
    TooLong,
    /// Parentheses or `NOT`s are nested deeper than [`DEPTH_MAX`].
    TooDeep,
    /// A character that starts no token.
    Character(char),
    /// A quote without its end.
    Unclosed,
    /// A token that must not stand there; empty at the end of the text.
    Unexpected(String),
    /// A number that is too large, or not a number.
    Number(String),
    /// There is no such unit.
    Unit(String),
    /// There is no such attribute.
    Attribute(String),
    /// The attribute has no value of this name.
    Name { attribute: &'static str, name: String },
    /// The attribute's type does not support the operation.
    Type {
        attribute: &'static str,
        /// Description of the attribute's type.
        is: &'static str,
        /// What is wrong, or what to do instead.
        problem: &'static str,
    },
    /// `POS 0`: positions are counted from 1.
    PositionZero,
    /// A range of nodes that ends before it begins.
    Backwards,
    /// A hole in a text that is not a template.
    NotATemplate,
    /// A `%` that is not followed by a conversion.
    Conversion,
    /// A hole among other text in quotes.
    HoleInQuotes,
    /// The number of values differs from the number of holes.
    ValueCount { holes: usize, values: usize },
    /// A value that does not fit its hole.
    Value {
        /// Number of the hole, from 1.
        hole: usize,
        /// Description of the accepted values.
        takes: &'static str,
    },
}

impl Error {
    pub(crate) fn new(text: &str, span: Range<usize>, kind: ErrorKind) -> Self {
        let start = span.start.min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let whole_line =
            text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let width = text
            .get(start..span.end)
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            .max(1);
        // A long line is shown from some characters before the place.
        let skipped = if whole_line.chars().count() <= EXCERPT_CHARS_MAX {
            0
        } else {
            column.saturating_sub(EXCERPT_CHARS_MAX / 2)
        };
        let excerpt: String =
            whole_line.chars().skip(skipped).take(EXCERPT_CHARS_MAX).map(printable).collect();
        let caret = column - skipped;
        Self(Box::new(Report {
            kind,
            span,
            line: before.matches('\n').count() + 1,
            column: column + 1,
            width: width.min(EXCERPT_CHARS_MAX.saturating_sub(caret).max(1)),
            excerpt,
            caret,
            expected: Vec::new(),
            suggestion: None,
        }))
    }

    pub(crate) fn expecting(mut self, expected: impl IntoIterator<Item = &'static str>) -> Self {
        self.0.expected = expected.into_iter().collect();
        self
    }

    pub(crate) fn suggesting(mut self, suggestion: Option<&'static str>) -> Self {
        self.0.suggestion = suggestion;
        self
    }

    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the bytes of the text that are wrong.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// Returns the line, from 1.
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// Returns the character in the line, from 1.
    pub fn column(&self) -> usize {
        self.0.column
    }

    /// Returns what could stand there: keywords in capitals, signs, and descriptions.
    pub fn expected(&self) -> &[&'static str] {
        &self.0.expected
    }

    /// Returns a known name that is similar to the written one.
    pub fn suggestion(&self) -> Option<&'static str> {
        self.0.suggestion
    }

    /// Returns the whole error in one line.
    pub fn summary(&self) -> String {
        let mut text =
            format!("{}, at line {}, character {}", self.0.kind, self.0.line, self.0.column);
        if let Some(suggestion) = self.0.suggestion {
            text += &format!("; did you mean `{suggestion}`?");
        } else if !self.0.expected.is_empty() {
            text += &format!("; expected {}", list(&self.0.expected));
        }
        text
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { kind, line, column, excerpt, caret, width, expected, suggestion, .. } =
            &*self.0;
        write!(f, "{kind}, at line {line}, character {column}")?;
        if !excerpt.is_empty() {
            write!(f, "\n    {excerpt}\n    {:caret$}{}", "", "^".repeat(*width))?;
        }
        if !expected.is_empty() {
            write!(f, "\nexpected {}", list(expected))?;
        }
        match suggestion {
            Some(suggestion) => write!(f, "\ndid you mean `{suggestion}`?"),
            None => Ok(()),
        }
    }
}

fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the query is longer than {} KiB", TEXT_BYTES_MAX >> 10),
            Self::TooDeep => {
                write!(f, "more than {DEPTH_MAX} nested parentheses and NOTs")
            }
            Self::Character(c) => write!(f, "`{}` is not part of the language", printable(*c)),
            Self::Unclosed => write!(f, "this quote has no end"),
            Self::Unexpected(found) if found.is_empty() => write!(f, "the query ends too early"),
            Self::Unexpected(found) => write!(f, "`{}` is not expected here", shown(found)),
            Self::Number(number) => write!(f, "`{}` is not a number that fits here", shown(number)),
            Self::Unit(unit) => write!(f, "there is no unit `{}`", shown(unit)),
            Self::Attribute(name) => write!(f, "there is no attribute `{}`", shown(name)),
            Self::Name { attribute, name } => {
                write!(f, "`{attribute}` has no value `{}`", shown(name))
            }
            Self::Type { attribute, is, problem } => write!(f, "`{attribute}` is {is}; {problem}"),
            Self::PositionZero => write!(f, "positions are counted from 1"),
            Self::Backwards => write!(f, "this range of nodes ends before it begins"),
            Self::NotATemplate => write!(f, "a query without values cannot have holes"),
            Self::Conversion => {
                write!(f, "this is not a hole; write a percent sign as %%, and only in quotes")
            }
            Self::HoleInQuotes => {
                write!(
                    f,
                    "a hole in quotes must be %s without other text; write a percent sign as %%"
                )
            }
            Self::ValueCount { holes, values } => write!(f, "{values} values for {holes} holes"),
            Self::Value { hole, takes } => write!(f, "hole {hole} takes {takes}"),
        }
    }
}

/// Returns the written text, shortened and in one line.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS_MAX / 2).map(printable).collect();
    if text.chars().nth(EXCERPT_CHARS_MAX / 2).is_some() {
        shown.push('…');
    }
    shown
}

/// Replaces control characters: they must not reach the terminal, and a caret must stand below its
/// place.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}
