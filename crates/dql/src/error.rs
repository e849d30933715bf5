//! What is wrong with a query, and where.

use std::fmt;
use std::ops::Range;

use crate::limits::{DEPTH_MAX, EXCERPT_CHARS_MAX, TEXT_BYTES_MAX};

/// What is wrong with a query, where, and what could be written instead. As text it has several lines: what, the line of
/// the query with carets under the place, and what was expected. [`Error::summary`] is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    span: Range<usize>,
    line: usize,
    column: usize,
    excerpt: String,
    /// In the excerpt, in characters.
    caret: usize,
    width: usize,
    expected: Vec<&'static str>,
    suggestion: Option<&'static str>,
}

/// What is wrong with a query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Longer than [`TEXT_BYTES_MAX`].
    TooLong,
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
    /// A character that begins nothing.
    Character(char),
    /// A quote without its end.
    Unclosed,
    /// Something that must not stand there; empty at the end of the text.
    Unexpected(String),
    /// A number that is too large, or no number.
    Number(String),
    /// No such unit.
    Unit(String),
    /// No such attribute.
    Attribute(String),
    /// The attribute has no value of this name.
    Name {
        /// The attribute.
        attribute: &'static str,
        /// What was written.
        name: String,
    },
    /// The attribute's type does not go with what is asked of it.
    Type {
        /// The attribute.
        attribute: &'static str,
        /// What it is.
        is: &'static str,
        /// What was asked.
        problem: &'static str,
    },
    /// `POS 0`: positions are counted from 1.
    PositionZero,
    /// A range of nodes that ends before it begins.
    Backwards,
    /// A hole in a text that is no template.
    NotATemplate,
    /// A `%` with something behind it that is no hole.
    Conversion,
    /// A hole among other text in quotes.
    HoleInQuotes,
    /// As many values must be given as there are holes.
    ValueCount {
        /// Holes.
        holes: usize,
        /// Values.
        values: usize,
    },
    /// A value that does not go into this hole.
    Value {
        /// The hole, counted from 1.
        hole: usize,
        /// What it takes.
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
        // A long line is shown from some way before the place.
        let skipped = if whole_line.chars().count() <= EXCERPT_CHARS_MAX {
            0
        } else {
            column.saturating_sub(EXCERPT_CHARS_MAX / 2)
        };
        let excerpt: String =
            whole_line.chars().skip(skipped).take(EXCERPT_CHARS_MAX).map(printable).collect();
        let caret = column - skipped;
        Self(Box::new(Inner {
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

    /// What is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Which bytes of the text are wrong.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// The character in the line, from 1.
    pub fn column(&self) -> usize {
        self.0.column
    }

    /// What could stand there: words in capitals and signs as they are written, and descriptions.
    pub fn expected(&self) -> &[&'static str] {
        &self.0.expected
    }

    /// A known name that is like the one that was written.
    pub fn suggestion(&self) -> Option<&'static str> {
        self.0.suggestion
    }

    /// All of it in one line.
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
        let Inner { kind, line, column, excerpt, caret, width, expected, suggestion, .. } =
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
                write!(f, "more than {DEPTH_MAX} parentheses and NOTs inside each other")
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
            Self::NotATemplate => write!(f, "a query that comes without values has no holes"),
            Self::Conversion => {
                write!(f, "this is no hole; a percent sign is written %%, and only in quotes")
            }
            Self::HoleInQuotes => {
                write!(
                    f,
                    "a hole in quotes must be %s and alone there; a percent sign is written %%"
                )
            }
            Self::ValueCount { holes, values } => write!(f, "{values} values for {holes} holes"),
            Self::Value { hole, takes } => write!(f, "hole {hole} takes {takes}"),
        }
    }
}

/// What was written, short and in one line.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS_MAX / 2).map(printable).collect();
    if text.chars().nth(EXCERPT_CHARS_MAX / 2).is_some() {
        shown.push('…');
    }
    shown
}

/// What would steer the terminal must not reach it, and a caret must be under its place.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}
