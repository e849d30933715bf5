//! Queries, ready to be asked.

use crate::attribute::Attribute;
use crate::check::check;
use crate::device::Device;
use crate::error::Error;
use crate::eval;
use crate::lex::Percent;
use crate::syntax::{self, Compare, Unit};
use crate::value::{Number, Version};

/// A query without holes. As text (`Display`) it is written in one canonical way, which parses to the same query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(crate) selection: Selection,
    pub(crate) nodes: Vec<Nodes>,
    pub(crate) filter: Option<Filter>,
    pub(crate) order: Vec<Order>,
}

// All numbers in it are finite.
impl Eq for Query {}

/// How many of the devices that fulfil the conditions are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All.
    All,
    /// The first ones, at most so many.
    Top(u64),
    /// One: its place in the order, from 1.
    Position(u64),
}

/// Some of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Nodes {
    /// First and last rank.
    Ranks(u64, u64),
    Host(Text),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// At least two.
    All(Vec<Filter>),
    /// At least two.
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
    /// In the attribute's own unit.
    pub(crate) value: Number,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Else it is a word, and may stand in a text among others.
    pub(crate) quoted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) place: Place,
    pub(crate) descending: bool,
}

impl Query {
    /// The query that `text` is.
    ///
    /// # Errors
    /// If it is none: says what is wrong where, and what was expected.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (tree, _) = syntax::parse(text, Percent::Plain)?;
        check(text, &tree, Some(&[]))
    }

    /// How many devices are wanted.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Whether a device fulfils the conditions (`FROM` and `WHERE`). None: unknown, so it is not selected.
    pub fn holds<D: Device + ?Sized>(&self, device: &D) -> Option<bool> {
        eval::holds(self, device)
    }

    /// Indices of those of `devices` that are selected, in the order of the query.
    pub fn select<D: Device>(&self, devices: &[D]) -> Vec<usize> {
        eval::select(self, devices)
    }
}
