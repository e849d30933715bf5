//! A query as written: what the parser returns and the check reads.

use std::ops::Range;

use crate::hole::HoleKind;

pub(crate) type Span = Range<usize>;

/// A parsed query, before the check.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) selection: SelectClause,
    pub(crate) nodes: Vec<WrittenNodes>,
    pub(crate) filter: Option<Condition>,
    pub(crate) order: Vec<OrderKey>,
}

/// How many devices the query selects.
#[derive(Clone, Debug)]
pub(crate) enum SelectClause {
    All,
    Top(WrittenValue),
    Position(WrittenValue),
}

/// A part of the list behind `FROM NODE`.
#[derive(Clone, Debug)]
pub(crate) enum WrittenNodes {
    One(WrittenValue),
    Range(WrittenValue, WrittenValue),
}

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Test(AttributeName, Box<Operation>),
}

/// An operation on an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Is(Span),
    Compare(Compare, Span, WrittenValue),
    Like(Span, WrittenValue),
    In(Span, Vec<WrittenValue>),
    Between(Span, WrittenValue, WrittenValue),
    Has(Span, WrittenValue),
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The name of an attribute, with the index of a member.
#[derive(Clone, Debug)]
pub(crate) struct AttributeName {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) index: Option<(u64, Span)>,
}

/// A part of the list behind `ORDER BY`.
#[derive(Clone, Debug)]
pub(crate) struct OrderKey {
    pub(crate) name: AttributeName,
    pub(crate) descending: bool,
}

/// A value as written.
#[derive(Clone, Debug)]
pub(crate) struct WrittenValue {
    pub(crate) kind: WrittenValueKind,
    pub(crate) negative: bool,
    pub(crate) unit: Option<(&'static Unit, Span)>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum WrittenValueKind {
    Bool(bool),
    Int(u64),
    Dotted(String),
    Text { text: String, quoted: bool },
    Hole { index: usize, kind: HoleKind, quoted: bool },
}

/// A unit of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) factor: u64,
    pub(crate) measures: Measure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Size,
    Frequency,
}

const fn size(name: &'static str, shift: u32) -> Unit {
    Unit { name, factor: 1 << shift, measures: Measure::Size }
}

const fn frequency(name: &'static str, factor: u64) -> Unit {
    Unit { name, factor, measures: Measure::Frequency }
}

/// Sizes are powers of two, as in OpenCL. People who write 1024MB mean that as well.
pub(crate) const UNITS: &[Unit] = &[
    size("B", 0),
    size("KB", 10),
    size("MB", 20),
    size("GB", 30),
    size("TB", 40),
    size("KiB", 10),
    size("MiB", 20),
    size("GiB", 30),
    size("TiB", 40),
    frequency("Hz", 1),
    frequency("kHz", 1_000),
    frequency("MHz", 1_000_000),
    frequency("GHz", 1_000_000_000),
];

impl Compare {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}
