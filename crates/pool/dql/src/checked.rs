//! A checked query: what evaluation and printing read.

use crate::attribute::Attribute;
use crate::kind::Kind;
use crate::tree::{Compare, Unit};
use crate::value::{Number, Version};

/// A query without holes. Its `Display` text is canonical, and parses to the same query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(crate) selection: Selection,
    pub(crate) nodes: Vec<NodeFilter>,
    pub(crate) filter: Option<Filter>,
    pub(crate) order: Vec<OrderBy>,
}

// All numbers in a query are finite.
impl Eq for Query {}

/// How many of the devices that satisfy the conditions are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of these devices.
    All,
    /// At most this number of them, from the first on.
    Top(u64),
    /// Only the device at this position in the order, from 1.
    Position(u64),
}

/// A part of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeFilter {
    /// First and last rank.
    Ranks(u64, u64),
    Host(TextLiteral),
}

/// A condition on the attributes of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// At least two filters.
    All(Vec<Filter>),
    /// At least two filters.
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Test(AttributePath, Test),
}

/// An attribute, or a member of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttributePath {
    pub(crate) attribute: Attribute,
    pub(crate) index: Option<u32>,
}

/// A condition on one attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    Is,
    Compare(Compare, Literal),
    Like(String),
    In(Vec<Literal>),
    Between(Literal, Literal),
    Has(Literal),
    Null,
}

/// A value with which an attribute is compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Bool(bool),
    Number(Quantity),
    Version(Version),
    Text(TextLiteral),
    Name { name: &'static str, value: u64 },
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantity {
    pub(crate) written: Number,
    pub(crate) unit: Option<&'static Unit>,
    /// The number in the attribute's own unit.
    pub(crate) value: Number,
}

/// A text with which an attribute is compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextLiteral {
    pub(crate) text: String,
    /// Whether the text was in quotes. Otherwise it is a word, and may stand in a text among
    /// others.
    pub(crate) quoted: bool,
}

/// An attribute that orders the devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrderBy {
    pub(crate) path: AttributePath,
    pub(crate) descending: bool,
}

impl AttributePath {
    /// Returns the type of the value.
    pub(crate) fn kind(self) -> Kind {
        if self.index.is_some() { Kind::Number } else { self.attribute.kind() }
    }
}
