//! Turns a tree into a query: finds the attributes, and checks the operations against their types.

use std::borrow::Cow;

use crate::attribute::{Attribute, Kind, Named};
use crate::error::{Error, ErrorKind};
use crate::lex::is_word;
use crate::query::{Filter, Literal, Nodes, Order, Place, Quantity, Query, Selection, Test, Text};
use crate::suggest;
use crate::syntax::{
    Asked, Compare, Condition, Key, Measure, Name, Node, Select, Span, Tree, Unit, Written,
    WrittenKind,
};
use crate::template::HoleKind;
use crate::value::{Number, Value, Version};

/// Converts Hz to MHz, the unit of frequencies without one.
const HZ_PER_MHZ: u64 = 1_000_000;

/// Returns the query for `tree` with `values` in its holes. Without values it checks whether there
/// can be a query.
pub(crate) fn check(text: &str, tree: &Tree, values: Option<&[Value<'_>]>) -> Result<Query, Error> {
    let checker = Checker { text, values };
    Ok(Query {
        selection: checker.selection(&tree.selection)?,
        nodes: tree.nodes.iter().map(|node| checker.nodes(node)).collect::<Result<_, _>>()?,
        filter: tree.filter.as_ref().map(|condition| checker.filter(condition)).transpose()?,
        order: tree.order.iter().map(|key| checker.order(key)).collect::<Result<_, _>>()?,
    })
}

struct Checker<'a> {
    text: &'a str,
    values: Option<&'a [Value<'a>]>,
}

/// A written value with its hole filled.
enum Filled<'a> {
    Bool(bool),
    Int(i128),
    Dotted(&'a str),
    Float(f64),
    Text(Cow<'a, str>, bool),
    /// A hole whose value is not known yet.
    Any(HoleKind),
}

/// What a value is compared for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Equality,
    Order,
}

impl<'a> Checker<'a> {
    fn selection(&self, selection: &Select) -> Result<Selection, Error> {
        match selection {
            Select::All => Ok(Selection::All),
            Select::Top(count) => self.count(count).map(Selection::Top),
            Select::Position(place) => match self.count(place)? {
                0 => Err(self.error(&place.span, ErrorKind::PositionZero)),
                place => Ok(Selection::Position(place)),
            },
        }
    }

    fn count(&self, written: &Written) -> Result<u64, Error> {
        match self.filled(written)? {
            Filled::Int(number) => u64::try_from(number)
                .map_err(|_| self.error(&written.span, ErrorKind::Number(number.to_string()))),
            // The parser only accepts whole numbers here, and the number 1 is valid everywhere.
            _ => Ok(1),
        }
    }

    fn nodes(&self, node: &Node) -> Result<Nodes, Error> {
        match node {
            Node::Range(first, last) => {
                let ranks = (self.count(first)?, self.count(last)?);
                if ranks.0 > ranks.1 {
                    return Err(
                        self.error(&(first.span.start..last.span.end), ErrorKind::Backwards)
                    );
                }
                Ok(Nodes::Ranks(ranks.0, ranks.1))
            }
            Node::One(written) => match self.filled(written)? {
                Filled::Text(text, quoted) => {
                    Ok(Nodes::Host(Text { text: text.into_owned(), quoted }))
                }
                _ => self.count(written).map(|rank| Nodes::Ranks(rank, rank)),
            },
        }
    }

    fn order(&self, key: &Key) -> Result<Order, Error> {
        let place = self.place(&key.name)?;
        if let Kind::Tokens | Kind::Flags(_) | Kind::Choices(_) | Kind::Names | Kind::Versions =
            place.kind()
        {
            return Err(self.type_error(&key.name.span, place, "it has no order"));
        }
        self.no_list(place, &key.name.span)?;
        Ok(Order { place, descending: key.descending })
    }

    fn filter(&self, condition: &Condition) -> Result<Filter, Error> {
        match condition {
            Condition::All(conditions) => {
                let filters = self.filters(conditions)?;
                let flat = |it| if let Filter::All(inner) = it { inner } else { vec![it] };
                Ok(Filter::All(filters.into_iter().flat_map(flat).collect()))
            }
            Condition::Any(conditions) => {
                let filters = self.filters(conditions)?;
                let flat = |it| if let Filter::Any(inner) = it { inner } else { vec![it] };
                Ok(Filter::Any(filters.into_iter().flat_map(flat).collect()))
            }
            Condition::Not(condition) => Ok(Filter::Not(Box::new(self.filter(condition)?))),
            Condition::Test(name, asked) => {
                let place = self.place(name)?;
                Ok(Filter::Test(place, self.test(place, asked)?))
            }
        }
    }

    fn filters(&self, conditions: &[Condition]) -> Result<Vec<Filter>, Error> {
        conditions.iter().map(|condition| self.filter(condition)).collect()
    }

    fn place(&self, name: &Name) -> Result<Place, Error> {
        let Some(attribute) = Attribute::find(&name.name) else {
            let error = self.error(&name.span, ErrorKind::Attribute(name.name.clone()));
            return Err(error.suggesting(Attribute::like(&name.name)));
        };
        let mut place = Place { attribute, index: None };
        if let Some((index, span)) = &name.index {
            if attribute.kind() != Kind::Numbers {
                return Err(self.type_error(span, place, "it has no members with an index"));
            }
            let number = || self.error(span, ErrorKind::Number(index.to_string()));
            place.index = Some(u32::try_from(*index).map_err(|_| number())?);
        }
        Ok(place)
    }

    fn test(&self, place: Place, asked: &Asked) -> Result<Test, Error> {
        let kind = place.kind();
        match asked {
            Asked::Null => Ok(Test::Null),
            Asked::Is(_) if kind == Kind::Bool => Ok(Test::Is),
            Asked::Is(span) => Err(self.type_error(span, place, "compare it with a value")),
            Asked::Compare(compare, span, value) => {
                let purpose = match compare {
                    Compare::Equal | Compare::NotEqual => Purpose::Equality,
                    _ => self.ordered(place, span)?,
                };
                Ok(Test::Compare(*compare, self.literal(place, span, value, purpose)?))
            }
            Asked::In(span, values) => {
                let literal = |value| self.literal(place, span, value, Purpose::Equality);
                Ok(Test::In(values.iter().map(literal).collect::<Result<_, _>>()?))
            }
            Asked::Between(span, low, high) => {
                let purpose = self.ordered(place, span)?;
                let literal = |value| self.literal(place, span, value, purpose);
                Ok(Test::Between(literal(low)?, literal(high)?))
            }
            Asked::Like(span, pattern) => {
                if !matches!(
                    kind,
                    Kind::Text | Kind::Tokens | Kind::VersionText | Kind::Host | Kind::Node
                ) {
                    return Err(self.type_error(span, place, "LIKE does not apply to it"));
                }
                match self.filled(pattern)? {
                    Filled::Text(text, true) => Ok(Test::Like(text.into_owned())),
                    // A value for a hole needs no quotes to be a pattern.
                    Filled::Text(text, false)
                        if matches!(pattern.kind, WrittenKind::Hole { .. }) =>
                    {
                        Ok(Test::Like(text.into_owned()))
                    }
                    Filled::Any(HoleKind::Text) => Ok(Test::Like(String::new())),
                    _ => {
                        let found =
                            self.text.get(pattern.span.clone()).unwrap_or_default().to_owned();
                        let error = self.error(&pattern.span, ErrorKind::Unexpected(found));
                        Err(error.expecting(["a pattern in quotes"]))
                    }
                }
            }
            Asked::Has(span, value) => Ok(Test::Has(self.member(place, span, value)?)),
        }
    }

    fn ordered(&self, place: Place, span: &Span) -> Result<Purpose, Error> {
        match place.kind() {
            Kind::Number | Kind::Bytes | Kind::Frequency | Kind::Real | Kind::Numbers => {
                Ok(Purpose::Order)
            }
            Kind::Version | Kind::VersionText | Kind::Node => Ok(Purpose::Order),
            _ => Err(self.type_error(
                span,
                place,
                "it is not larger or smaller than another; use = or !=",
            )),
        }
    }

    /// Refuses lists, which cannot be compared as a whole.
    fn no_list(&self, place: Place, span: &Span) -> Result<(), Error> {
        match place.kind() {
            Kind::Numbers => Err(self.type_error(
                span,
                place,
                "name one of its members, as in max_work_item_sizes[0]",
            )),
            Kind::Names | Kind::Choices(_) | Kind::Versions => {
                Err(self.type_error(span, place, "use HAS to search it"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the value with which an attribute is compared.
    fn literal(
        &self,
        place: Place,
        span: &Span,
        written: &Written,
        purpose: Purpose,
    ) -> Result<Literal, Error> {
        self.no_list(place, span)?;
        let filled = self.filled(written)?;
        let wrong = |problem| Err(self.type_error(&written.span, place, problem));
        match place.kind() {
            Kind::Number | Kind::Real | Kind::Bytes | Kind::Frequency => {
                self.quantity(place, written, &filled)
            }
            Kind::Bool => match filled {
                Filled::Bool(value) => Ok(Literal::Bool(value)),
                Filled::Int(value @ 0..=1) if written.unit.is_none() => {
                    Ok(Literal::Bool(value == 1))
                }
                Filled::Any(kind) if kind.is_integer() && written.unit.is_none() => {
                    Ok(Literal::Bool(true))
                }
                _ => wrong("compare it with TRUE or FALSE"),
            },
            Kind::Text | Kind::Tokens | Kind::Host => match text(filled) {
                Some(text) => Ok(Literal::Text(text)),
                None => wrong("compare it with a word or a text in quotes"),
            },
            Kind::Node => match text(filled) {
                Some(text) if purpose == Purpose::Equality => Ok(Literal::Text(text)),
                Some(_) => wrong("only its rank is larger or smaller than another"),
                None => self.quantity(place, written, &self.filled(written)?),
            },
            Kind::Version => self.version(place, written, &filled),
            Kind::VersionText => match filled {
                Filled::Text(..) | Filled::Any(HoleKind::Text) if purpose == Purpose::Equality => {
                    Ok(text(filled).map_or(Literal::Bool(false), Literal::Text))
                }
                _ => self.version(place, written, &filled),
            },
            Kind::Choice(names) | Kind::Type(names) => self.named(place, names, written, filled),
            Kind::Flags(_) => match filled {
                Filled::Text(..) | Filled::Any(HoleKind::Text) => wrong("use HAS for a flag"),
                _ => self.quantity(place, written, &filled),
            },
            Kind::Numbers | Kind::Choices(_) | Kind::Names | Kind::Versions => {
                wrong("use HAS to search it")
            }
        }
    }

    /// Returns the value for which a set or list is searched.
    fn member(&self, place: Place, span: &Span, written: &Written) -> Result<Literal, Error> {
        let filled = self.filled(written)?;
        let is_text = matches!(filled, Filled::Text(..) | Filled::Any(HoleKind::Text));
        match place.kind() {
            Kind::Tokens | Kind::Names => match text(filled) {
                Some(text) => Ok(Literal::Text(text)),
                None => Err(self.type_error(&written.span, place, "its members are words")),
            },
            Kind::Flags(names) | Kind::Choices(names) if is_text => {
                self.named(place, names, written, filled)
            }
            Kind::Flags(_) | Kind::Choices(_) | Kind::Numbers => {
                self.quantity(place, written, &filled)
            }
            Kind::Versions => self.version(place, written, &filled),
            _ => Err(self.type_error(span, place, "HAS only applies to sets and lists")),
        }
    }

    fn named(
        &self,
        place: Place,
        names: &'static [Named],
        written: &Written,
        filled: Filled<'_>,
    ) -> Result<Literal, Error> {
        let name = match filled {
            Filled::Text(name, _) => name,
            Filled::Any(HoleKind::Text) => names.first().map_or("", |named| named.name).into(),
            _ => return Err(self.type_error(&written.span, place, "compare it with one of them")),
        };
        if let Some(Named { name, value }) =
            names.iter().find(|named| named.name.eq_ignore_ascii_case(&name))
        {
            return Ok(Literal::Name { name, value: *value });
        }
        let known = || names.iter().map(|named| named.name);
        let kind =
            ErrorKind::Name { attribute: place.attribute.name(), name: name.clone().into_owned() };
        Err(self
            .error(&written.span, kind)
            .expecting(known())
            .suggesting(suggest::nearest(&name, known())))
    }

    fn version(
        &self,
        place: Place,
        written: &Written,
        filled: &Filled<'_>,
    ) -> Result<Literal, Error> {
        if let Some((_, span)) = &written.unit {
            return Err(self.type_error(span, place, "it has no unit"));
        }
        let version = match filled {
            Filled::Int(major) => u32::try_from(*major).ok().map(|major| Version::new(major, 0)),
            Filled::Dotted(text) if !written.negative => Version::parse(text),
            Filled::Text(text, _) if text.chars().all(|c| c.is_ascii_digit() || c == '.') => {
                Version::parse(text)
            }
            Filled::Any(kind) if kind.is_integer() || *kind == HoleKind::Text => {
                Some(Version::default())
            }
            _ => None,
        };
        match version {
            Some(version) => Ok(Literal::Version(version)),
            None => {
                Err(self.type_error(&written.span, place, "compare it with a version, as in 3.0"))
            }
        }
    }

    fn quantity(
        &self,
        place: Place,
        written: &Written,
        filled: &Filled<'_>,
    ) -> Result<Literal, Error> {
        let kind = place.kind();
        let whole_only = matches!(kind, Kind::Flags(_) | Kind::Node);
        let number = match filled {
            Filled::Int(number) => Some(Number::Int(*number)),
            Filled::Any(kind) if kind.is_integer() => Some(Number::Int(1)),
            _ if whole_only => None,
            Filled::Dotted(text) => float(text, written.negative).map(Number::Float),
            Filled::Float(number) => Some(Number::Float(*number)),
            Filled::Any(HoleKind::Float) => Some(Number::Float(1.0)),
            _ => None,
        };
        let Some(number) = number else {
            let problem = if whole_only {
                "compare it with a whole number"
            } else {
                "compare it with a number"
            };
            return Err(self.type_error(&written.span, place, problem));
        };
        let unit = written.unit.as_ref().map(|(unit, _)| *unit);
        let value = self.in_own_unit(place, number, written)?;
        Ok(Literal::Number(Quantity { written: number, unit, value }))
    }

    fn in_own_unit(
        &self,
        place: Place,
        number: Number,
        written: &Written,
    ) -> Result<Number, Error> {
        let Some((Unit { factor, measures, .. }, span)) = &written.unit else { return Ok(number) };
        let value = match (place.kind(), measures) {
            (Kind::Bytes, Measure::Size) => number.times(*factor),
            (Kind::Frequency, Measure::Frequency) => {
                number.times(*factor).map(|hz| hz.over(HZ_PER_MHZ))
            }
            (Kind::Bytes, _) => {
                return Err(self.type_error(span, place, "its units are B to TB and KiB to TiB"));
            }
            (Kind::Frequency, _) => {
                return Err(self.type_error(span, place, "its units are Hz to GHz"));
            }
            _ => return Err(self.type_error(span, place, "it has no unit")),
        };
        let found = || self.text.get(written.span.clone()).unwrap_or_default().to_owned();
        value.ok_or_else(|| self.error(&written.span, ErrorKind::Number(found())))
    }

    fn filled(&self, written: &'a Written) -> Result<Filled<'a>, Error> {
        let sign = if written.negative { -1 } else { 1 };
        let (index, kind, in_quotes) = match &written.kind {
            WrittenKind::Bool(value) => return Ok(Filled::Bool(*value)),
            WrittenKind::Int(number) => return Ok(Filled::Int(sign * i128::from(*number))),
            WrittenKind::Dotted(text) => return Ok(Filled::Dotted(text)),
            WrittenKind::Text { text, quoted } => return Ok(Filled::Text(text.into(), *quoted)),
            WrittenKind::Hole { index, kind, quoted } => (*index, *kind, *quoted),
        };
        let Some(values) = self.values else { return Ok(Filled::Any(kind)) };
        match values.get(index).filter(|value| kind.accepts(value)) {
            Some(Value::Int(number)) => Ok(Filled::Int(*number)),
            Some(Value::Float(number)) => Ok(Filled::Float(*number)),
            // A text that is not a single word can only be compared with a whole text.
            Some(Value::Text(text)) => {
                Ok(Filled::Text(text.as_ref().into(), in_quotes || !is_word(text)))
            }
            _ => Err(self
                .error(&written.span, ErrorKind::Value { hole: index + 1, takes: kind.takes() })),
        }
    }

    fn error(&self, span: &Span, kind: ErrorKind) -> Error {
        Error::new(self.text, span.clone(), kind)
    }

    fn type_error(&self, span: &Span, place: Place, problem: &'static str) -> Error {
        let (attribute, is) = (place.attribute.name(), place.kind().describe());
        self.error(span, ErrorKind::Type { attribute, is, problem })
    }
}

impl Place {
    /// The type of the value at this place.
    pub(crate) fn kind(self) -> Kind {
        if self.index.is_some() { Kind::Number } else { self.attribute.kind() }
    }
}

fn text(filled: Filled<'_>) -> Option<Text> {
    match filled {
        Filled::Text(text, quoted) => Some(Text { text: text.into_owned(), quoted }),
        Filled::Any(HoleKind::Text) => Some(Text { text: String::new(), quoted: true }),
        _ => None,
    }
}

/// Parses a number with one point. With two points it would be a version.
fn float(text: &str, negative: bool) -> Option<f64> {
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    Some(if negative { -number } else { number })
}
