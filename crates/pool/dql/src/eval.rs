//! Evaluation of queries. A condition is true, false or unknown (`None`), as in SQL.

use std::cmp::Ordering;

use crate::attribute::Attribute;
use crate::checked::{
    AttributePath, Filter, Literal, NodeFilter, OrderBy, Query, Selection, Test, TextLiteral,
};
use crate::device::Device;
use crate::kind::Kind;
use crate::text::{has_word, is_host, is_like, tokens};
use crate::tree::Compare;
use crate::value::{Number, Value, Version};

/// Vendors by PCI identifier, because a driver's text may name the vendor differently. AMD's
/// processors have an identifier of their own.
const VENDORS: &[(&str, &[u64])] =
    &[("nvidia", &[0x10DE]), ("amd", &[0x1002, 0x1022]), ("intel", &[0x8086])];

pub(crate) fn holds<D: Device + ?Sized>(query: &Query, device: &D) -> Option<bool> {
    let evaluator = Evaluator(device);
    let is_there = if query.nodes.is_empty() {
        Some(true)
    } else {
        any(query.nodes.iter().map(|nodes| evaluator.is_on(nodes)))
    };
    if is_there == Some(false) {
        return is_there;
    }
    and(is_there, query.filter.as_ref().map_or(Some(true), |filter| evaluator.filter(filter)))
}

pub(crate) fn select<D: Device>(query: &Query, devices: &[D]) -> Vec<usize> {
    let chosen =
        devices.iter().enumerate().filter(|(_, device)| holds(query, *device) == Some(true));
    let mut keyed: Vec<_> = chosen
        .map(|(index, device)| {
            let evaluator = Evaluator(device);
            let key = |path: AttributePath| SortKey::new(path.kind(), &evaluator.key(path)?);
            let keys: Vec<_> = query.order.iter().map(|order| key(order.path)).collect();
            let own =
                [Attribute::RANK, Attribute::DEVICE_INDEX].map(|it| device.attribute(it)?.number());
            (keys, own, index)
        })
        .collect();
    // The sort is stable: equal devices keep the given order.
    keyed.sort_by(|one, other| {
        let by_keys = query
            .order
            .iter()
            .zip(one.0.iter().zip(&other.0))
            .map(|(order, (one, other))| order_keys(order, one.as_ref(), other.as_ref()));
        let by_place = one
            .1
            .iter()
            .zip(&other.1)
            .map(|(one, other)| unknown_last(*one, *other, Number::order));
        by_keys.chain(by_place).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    let indices = keyed.into_iter().map(|(_, _, index)| index);
    let up_to = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    match query.selection {
        Selection::All => indices.collect(),
        Selection::Top(count) => indices.take(up_to(count)).collect(),
        Selection::Position(position) => indices.skip(up_to(position) - 1).take(1).collect(),
    }
}

/// A value by which devices are ordered.
enum SortKey {
    Number(Number),
    Version(Version),
    /// In lower case, to ignore case.
    Text(String),
}

impl SortKey {
    fn new(kind: Kind, value: &Value<'_>) -> Option<Self> {
        match kind {
            Kind::Version | Kind::VersionText => value.version().map(Self::Version),
            Kind::Text | Kind::Host => {
                value.text().map(|text| Self::Text(text.to_ascii_lowercase()))
            }
            _ => value.number().map(Self::Number),
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.order(*other),
            (Self::Version(one), Self::Version(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            // All keys of one attribute have the same type.
            _ => Ordering::Equal,
        }
    }
}

fn order_keys(order: &OrderBy, one: Option<&SortKey>, other: Option<&SortKey>) -> Ordering {
    unknown_last(one, other, |one, other| {
        let ordering = one.order(other);
        if order.descending { ordering.reverse() } else { ordering }
    })
}

/// Orders unknown values last, in either direction of the other values.
fn unknown_last<T>(
    one: Option<T>,
    other: Option<T>,
    order: impl FnOnce(T, T) -> Ordering,
) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => order(one, other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

/// Evaluates conditions on one device.
struct Evaluator<'a, D: ?Sized>(&'a D);

impl<'a, D: Device + ?Sized> Evaluator<'a, D> {
    fn is_on(&self, nodes: &NodeFilter) -> Option<bool> {
        match nodes {
            NodeFilter::Ranks(first, last) => {
                let rank = self.0.attribute(Attribute::RANK)?.bits()?;
                Some((*first..=*last).contains(&rank))
            }
            NodeFilter::Host(name) => {
                Some(is_host(self.0.attribute(Attribute::HOSTNAME)?.text()?, &name.text))
            }
        }
    }

    fn filter(&self, filter: &Filter) -> Option<bool> {
        match filter {
            Filter::All(filters) => all(filters.iter().map(|filter| self.filter(filter))),
            Filter::Any(filters) => any(filters.iter().map(|filter| self.filter(filter))),
            Filter::Not(filter) => self.filter(filter).map(|holds| !holds),
            Filter::Test(path, test) => self.test(*path, test),
        }
    }

    fn test(&self, path: AttributePath, test: &Test) -> Option<bool> {
        match test {
            Test::Null => Some(self.key(path).is_none()),
            Test::Is => self.value(path)?.truth(),
            Test::Compare(Compare::Equal, literal) => self.equals(path, literal),
            Test::Compare(Compare::NotEqual, literal) => {
                self.equals(path, literal).map(|equal| !equal)
            }
            Test::Compare(compare, literal) => {
                let order = self.order(path, literal)?;
                Some(match compare {
                    Compare::Less => order.is_lt(),
                    Compare::LessOrEqual => order.is_le(),
                    Compare::Greater => order.is_gt(),
                    Compare::GreaterOrEqual => order.is_ge(),
                    Compare::Equal => order.is_eq(),
                    Compare::NotEqual => order.is_ne(),
                })
            }
            Test::In(literals) => any(literals.iter().map(|literal| self.equals(path, literal))),
            Test::Between(low, high) => and(
                self.order(path, low).map(Ordering::is_ge),
                self.order(path, high).map(Ordering::is_le),
            ),
            Test::Like(pattern) => {
                let value = self.named(path)?;
                Some(is_like(value.text()?, pattern))
            }
            Test::Has(literal) => has(&self.value(path)?, literal),
        }
    }

    fn value(&self, path: AttributePath) -> Option<Value<'a>> {
        let value = self.0.attribute(path.attribute)?;
        match (path.index, value) {
            (None, value) => Some(value),
            (Some(index), Value::Ints(members)) => {
                members.get(usize::try_from(index).ok()?).map(|member| Value::Int(*member))
            }
            (Some(_), _) => None,
        }
    }

    /// Returns the value by which devices are ordered; for a node its rank.
    fn key(&self, path: AttributePath) -> Option<Value<'a>> {
        let attribute = if path.kind() == Kind::Node { Attribute::RANK } else { path.attribute };
        self.value(AttributePath { attribute, ..path })
    }

    /// Returns the value as a text; for a node its host name.
    fn named(&self, path: AttributePath) -> Option<Value<'a>> {
        let attribute =
            if path.kind() == Kind::Node { Attribute::HOSTNAME } else { path.attribute };
        self.value(AttributePath { attribute, ..path })
    }

    fn equals(&self, path: AttributePath, literal: &Literal) -> Option<bool> {
        match literal {
            Literal::Text(text) => self.equals_text(path, text),
            Literal::Bool(wanted) => Some(self.value(path)?.truth()? == *wanted),
            // One bit says that a device has this type. Another bit may say that it is the default
            // device.
            Literal::Name { value, .. } => {
                let bits = self.value(path)?.bits()?;
                Some(if let Kind::Type(_) = path.kind() {
                    bits & value != 0
                } else {
                    bits == *value
                })
            }
            Literal::Number(_) | Literal::Version(_) => {
                self.order(path, literal).map(Ordering::is_eq)
            }
        }
    }

    fn equals_text(&self, path: AttributePath, wanted: &TextLiteral) -> Option<bool> {
        let found = self.named(path);
        let found = found.as_ref().and_then(Value::text);
        let equal = found.map(|found| match path.kind() {
            Kind::Host | Kind::Node => is_host(found, &wanted.text),
            _ if wanted.quoted => found.eq_ignore_ascii_case(&wanted.text),
            _ => has_word(found, &wanted.text),
        });
        if path.attribute != Attribute::VENDOR || wanted.quoted || equal == Some(true) {
            return equal;
        }
        let Some((_, known)) =
            VENDORS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&wanted.text))
        else {
            return equal;
        };
        let identifier = self.0.attribute(Attribute::VENDOR_ID).and_then(|value| value.bits());
        if identifier.is_some_and(|identifier| known.contains(&identifier)) {
            Some(true)
        } else {
            equal
        }
    }

    fn order(&self, path: AttributePath, literal: &Literal) -> Option<Ordering> {
        let value = self.key(path)?;
        match literal {
            Literal::Number(quantity) => Some(value.number()?.order(quantity.value)),
            Literal::Version(version) => Some(value.version()?.cmp(version)),
            Literal::Bool(_) | Literal::Text(_) | Literal::Name { .. } => None,
        }
    }
}

fn has(value: &Value<'_>, literal: &Literal) -> Option<bool> {
    match (value, literal) {
        (Value::Text(text), Literal::Text(word)) => {
            Some(tokens(text).any(|token| token.eq_ignore_ascii_case(&word.text)))
        }
        (Value::Names(names), Literal::Text(word)) => {
            Some(names.iter().any(|name| name.eq_ignore_ascii_case(&word.text)))
        }
        (Value::Versions(versions), Literal::Version(version)) => Some(versions.contains(version)),
        (Value::Ints(members), Literal::Number(quantity)) => {
            Some(members.iter().any(|member| Number::Int(*member).order(quantity.value).is_eq()))
        }
        (Value::Ints(members), Literal::Name { value, .. }) => {
            Some(members.contains(&(*value).into()))
        }
        (Value::Int(_), Literal::Name { value: flag, .. }) => Some(value.bits()? & flag == *flag),
        (Value::Int(_), Literal::Number(quantity)) => {
            let Number::Int(flags) = quantity.value else { return None };
            let flags = u64::try_from(flags).ok()?;
            Some(value.bits()? & flags == flags)
        }
        _ => None,
    }
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    all([one, other].into_iter())
}

fn all(mut tests: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(tests.by_ref().map(|holds| holds.map(|holds| !holds))).map(|some_fail| !some_fail)
}

/// Returns true if a test is true, false if all are false, and otherwise unknown.
fn any(tests: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all_known = true;
    for test in tests {
        match test {
            Some(true) => return test,
            Some(false) => {}
            None => all_known = false,
        }
    }
    all_known.then_some(false)
}
