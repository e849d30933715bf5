//! Parsed and checked queries.

use crate::attribute::Attribute;
use crate::check::check;
use crate::device::Device;
use crate::error::Error;
use crate::eval;
use crate::lex::Percent;
use crate::syntax::{self, Compare, Unit};
use crate::value::{Number, Version};

/// A query without holes. Its `Display` text is canonical, and parses to the same query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(crate) selection: Selection,
    pub(crate) nodes: Vec<Nodes>,
    pub(crate) filter: Option<Filter>,
    pub(crate) order: Vec<Order>,
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
pub(crate) enum Nodes {
    /// First and last rank.
    Ranks(u64, u64),
    Host(Text),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// At least two filters.
    All(Vec<Filter>),
    /// At least two filters.
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Test(Place, Test),
}

/// An attribute, or a member of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) attribute: Attribute,
    pub(crate) index: Option<u32>,
}

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

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Bool(bool),
    Number(Quantity),
    Version(Version),
    Text(Text),
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Whether the text was in quotes. Otherwise it is a word, and may stand in a text among
    /// others.
    pub(crate) quoted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) place: Place,
    pub(crate) descending: bool,
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// The text is not a query. The error says what is wrong, where, and what was expected.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (tree, _) = syntax::parse(text, Percent::Plain)?;
        check(text, &tree, Some(&[]))
    }

    /// Returns how many devices are selected.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Whether a device satisfies `FROM` and `WHERE`. `None` means unknown; such a device is not
    /// selected.
    pub fn holds<D: Device + ?Sized>(&self, device: &D) -> Option<bool> {
        eval::holds(self, device)
    }

    /// Returns the indices of the selected devices, in the order of the query.
    pub fn select<D: Device>(&self, devices: &[D]) -> Vec<usize> {
        eval::select(self, devices)
    }
}
