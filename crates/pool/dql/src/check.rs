//! Turns a tree into a query: finds the attributes, and checks the operations against their types.

use std::borrow::Cow;

use crate::attribute::Attribute;
use crate::checked::{
    AttributePath, Filter, Literal, NodeFilter, OrderBy, Quantity, Query, Selection, Test,
    TextLiteral,
};
use crate::error::{Error, ErrorKind};
use crate::hole::HoleKind;
use crate::kind::{Kind, Named};
use crate::lex::is_word;
use crate::suggest;
use crate::tree::{
    AttributeName, Compare, Condition, Measure, Operation, OrderKey, SelectClause, Span, Tree,
    Unit, WrittenNodes, WrittenValue, WrittenValueKind,
};
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
enum FilledValue<'a> {
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
    fn selection(&self, selection: &SelectClause) -> Result<Selection, Error> {
        match selection {
            SelectClause::All => Ok(Selection::All),
            SelectClause::Top(count) => self.count(count).map(Selection::Top),
            SelectClause::Position(position) => match self.count(position)? {
                0 => Err(self.error(&position.span, ErrorKind::PositionZero)),
                position => Ok(Selection::Position(position)),
            },
        }
    }

    fn count(&self, written: &WrittenValue) -> Result<u64, Error> {
        match self.filled(written)? {
            FilledValue::Int(number) => u64::try_from(number)
                .map_err(|_| self.error(&written.span, ErrorKind::Number(number.to_string()))),
            // The parser only accepts whole numbers here, and the number 1 is valid everywhere.
            _ => Ok(1),
        }
    }

    fn nodes(&self, node: &WrittenNodes) -> Result<NodeFilter, Error> {
        match node {
            WrittenNodes::Range(first, last) => {
                let ranks = (self.count(first)?, self.count(last)?);
                if ranks.0 > ranks.1 {
                    return Err(
                        self.error(&(first.span.start..last.span.end), ErrorKind::Backwards)
                    );
                }
                Ok(NodeFilter::Ranks(ranks.0, ranks.1))
            }
            WrittenNodes::One(written) => match self.filled(written)? {
                FilledValue::Text(text, quoted) => {
                    Ok(NodeFilter::Host(TextLiteral { text: text.into_owned(), quoted }))
                }
                _ => self.count(written).map(|rank| NodeFilter::Ranks(rank, rank)),
            },
        }
    }

    fn order(&self, key: &OrderKey) -> Result<OrderBy, Error> {
        let path = self.attribute_path(&key.name)?;
        if let Kind::Tokens | Kind::Flags(_) | Kind::Choices(_) | Kind::Names | Kind::Versions =
            path.kind()
        {
            return Err(self.type_error(&key.name.span, path, "it has no order"));
        }
        self.no_list(path, &key.name.span)?;
        Ok(OrderBy { path, descending: key.descending })
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
            Condition::Test(name, operation) => {
                let path = self.attribute_path(name)?;
                Ok(Filter::Test(path, self.test(path, operation)?))
            }
        }
    }

    fn filters(&self, conditions: &[Condition]) -> Result<Vec<Filter>, Error> {
        conditions.iter().map(|condition| self.filter(condition)).collect()
    }

    fn attribute_path(&self, name: &AttributeName) -> Result<AttributePath, Error> {
        let Some(attribute) = Attribute::find(&name.name) else {
            let error = self.error(&name.span, ErrorKind::Attribute(name.name.clone()));
            return Err(error.suggesting(Attribute::like(&name.name)));
        };
        let mut path = AttributePath { attribute, index: None };
        if let Some((index, span)) = &name.index {
            if attribute.kind() != Kind::Numbers {
                return Err(self.type_error(span, path, "it has no members with an index"));
            }
            let number = || self.error(span, ErrorKind::Number(index.to_string()));
            path.index = Some(u32::try_from(*index).map_err(|_| number())?);
        }
        Ok(path)
    }

    fn test(&self, path: AttributePath, operation: &Operation) -> Result<Test, Error> {
        let kind = path.kind();
        match operation {
            Operation::Null => Ok(Test::Null),
            Operation::Is(_) if kind == Kind::Bool => Ok(Test::Is),
            Operation::Is(span) => Err(self.type_error(span, path, "compare it with a value")),
            Operation::Compare(compare, span, value) => {
                let purpose = match compare {
                    Compare::Equal | Compare::NotEqual => Purpose::Equality,
                    _ => self.ordered(path, span)?,
                };
                Ok(Test::Compare(*compare, self.literal(path, span, value, purpose)?))
            }
            Operation::In(span, values) => {
                let literal = |value| self.literal(path, span, value, Purpose::Equality);
                Ok(Test::In(values.iter().map(literal).collect::<Result<_, _>>()?))
            }
            Operation::Between(span, low, high) => {
                let purpose = self.ordered(path, span)?;
                let literal = |value| self.literal(path, span, value, purpose);
                Ok(Test::Between(literal(low)?, literal(high)?))
            }
            Operation::Like(span, pattern) => {
                if !matches!(
                    kind,
                    Kind::Text | Kind::Tokens | Kind::VersionText | Kind::Host | Kind::Node
                ) {
                    return Err(self.type_error(span, path, "LIKE does not apply to it"));
                }
                match self.filled(pattern)? {
                    FilledValue::Text(text, true) => Ok(Test::Like(text.into_owned())),
                    // A value that fills a hole is a pattern without quotes.
                    FilledValue::Text(text, false)
                        if matches!(pattern.kind, WrittenValueKind::Hole { .. }) =>
                    {
                        Ok(Test::Like(text.into_owned()))
                    }
                    FilledValue::Any(HoleKind::Text) => Ok(Test::Like(String::new())),
                    _ => {
                        let found =
                            self.text.get(pattern.span.clone()).unwrap_or_default().to_owned();
                        let error = self.error(&pattern.span, ErrorKind::Unexpected(found));
                        Err(error.expecting(["a pattern in quotes"]))
                    }
                }
            }
            Operation::Has(span, value) => Ok(Test::Has(self.member(path, span, value)?)),
        }
    }

    fn ordered(&self, path: AttributePath, span: &Span) -> Result<Purpose, Error> {
        match path.kind() {
            Kind::Number | Kind::Bytes | Kind::Frequency | Kind::Real | Kind::Numbers => {
                Ok(Purpose::Order)
            }
            Kind::Version | Kind::VersionText | Kind::Node => Ok(Purpose::Order),
            _ => Err(self.type_error(
                span,
                path,
                "it is not larger or smaller than another; use = or !=",
            )),
        }
    }

    /// Refuses lists, which cannot be compared as a whole.
    fn no_list(&self, path: AttributePath, span: &Span) -> Result<(), Error> {
        match path.kind() {
            Kind::Numbers => Err(self.type_error(
                span,
                path,
                "name one of its members, as in max_work_item_sizes[0]",
            )),
            Kind::Names | Kind::Choices(_) | Kind::Versions => {
                Err(self.type_error(span, path, "use HAS to search it"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the value with which an attribute is compared.
    fn literal(
        &self,
        path: AttributePath,
        span: &Span,
        written: &WrittenValue,
        purpose: Purpose,
    ) -> Result<Literal, Error> {
        self.no_list(path, span)?;
        let filled = self.filled(written)?;
        let wrong = |problem| Err(self.type_error(&written.span, path, problem));
        match path.kind() {
            Kind::Number | Kind::Real | Kind::Bytes | Kind::Frequency => {
                self.quantity(path, written, &filled)
            }
            Kind::Bool => match filled {
                FilledValue::Bool(value) => Ok(Literal::Bool(value)),
                FilledValue::Int(value @ 0..=1) if written.unit.is_none() => {
                    Ok(Literal::Bool(value == 1))
                }
                FilledValue::Any(kind) if kind.is_integer() && written.unit.is_none() => {
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
                None => self.quantity(path, written, &self.filled(written)?),
            },
            Kind::Version => self.version(path, written, &filled),
            Kind::VersionText => match filled {
                FilledValue::Text(..) | FilledValue::Any(HoleKind::Text)
                    if purpose == Purpose::Equality =>
                {
                    Ok(text(filled).map_or(Literal::Bool(false), Literal::Text))
                }
                _ => self.version(path, written, &filled),
            },
            Kind::Choice(names) | Kind::Type(names) => self.named(path, names, written, filled),
            Kind::Flags(_) => match filled {
                FilledValue::Text(..) | FilledValue::Any(HoleKind::Text) => {
                    wrong("use HAS for a flag")
                }
                _ => self.quantity(path, written, &filled),
            },
            Kind::Numbers | Kind::Choices(_) | Kind::Names | Kind::Versions => {
                wrong("use HAS to search it")
            }
        }
    }

    /// Returns the value for which a set or list is searched.
    fn member(
        &self,
        path: AttributePath,
        span: &Span,
        written: &WrittenValue,
    ) -> Result<Literal, Error> {
        let filled = self.filled(written)?;
        let is_text = matches!(filled, FilledValue::Text(..) | FilledValue::Any(HoleKind::Text));
        match path.kind() {
            Kind::Tokens | Kind::Names => match text(filled) {
                Some(text) => Ok(Literal::Text(text)),
                None => Err(self.type_error(&written.span, path, "its members are words")),
            },
            Kind::Flags(names) | Kind::Choices(names) if is_text => {
                self.named(path, names, written, filled)
            }
            Kind::Flags(_) | Kind::Choices(_) | Kind::Numbers => {
                self.quantity(path, written, &filled)
            }
            Kind::Versions => self.version(path, written, &filled),
            _ => Err(self.type_error(span, path, "HAS only applies to sets and lists")),
        }
    }

    fn named(
        &self,
        path: AttributePath,
        names: &'static [Named],
        written: &WrittenValue,
        filled: FilledValue<'_>,
    ) -> Result<Literal, Error> {
        let name = match filled {
            FilledValue::Text(name, _) => name,
            FilledValue::Any(HoleKind::Text) => names.first().map_or("", |named| named.name).into(),
            _ => return Err(self.type_error(&written.span, path, "compare it with one of them")),
        };
        if let Some(Named { name, value }) =
            names.iter().find(|named| named.name.eq_ignore_ascii_case(&name))
        {
            return Ok(Literal::Name { name, value: *value });
        }
        let known = || names.iter().map(|named| named.name);
        let kind =
            ErrorKind::Name { attribute: path.attribute.name(), name: name.clone().into_owned() };
        Err(self
            .error(&written.span, kind)
            .expecting(known())
            .suggesting(suggest::nearest(&name, known())))
    }

    fn version(
        &self,
        path: AttributePath,
        written: &WrittenValue,
        filled: &FilledValue<'_>,
    ) -> Result<Literal, Error> {
        if let Some((_, span)) = &written.unit {
            return Err(self.type_error(span, path, "it has no unit"));
        }
        let version = match filled {
            FilledValue::Int(major) => {
                u32::try_from(*major).ok().map(|major| Version::new(major, 0))
            }
            FilledValue::Dotted(text) if !written.negative => Version::parse(text),
            FilledValue::Text(text, _) if text.chars().all(|c| c.is_ascii_digit() || c == '.') => {
                Version::parse(text)
            }
            FilledValue::Any(kind) if kind.is_integer() || *kind == HoleKind::Text => {
                Some(Version::default())
            }
            _ => None,
        };
        match version {
            Some(version) => Ok(Literal::Version(version)),
            None => {
                Err(self.type_error(&written.span, path, "compare it with a version, as in 3.0"))
            }
        }
    }

    fn quantity(
        &self,
        path: AttributePath,
        written: &WrittenValue,
        filled: &FilledValue<'_>,
    ) -> Result<Literal, Error> {
        let kind = path.kind();
        let whole_only = matches!(kind, Kind::Flags(_) | Kind::Node);
        let number = match filled {
            FilledValue::Int(number) => Some(Number::Int(*number)),
            FilledValue::Any(kind) if kind.is_integer() => Some(Number::Int(1)),
            _ if whole_only => None,
            FilledValue::Dotted(text) => float(text, written.negative).map(Number::Float),
            FilledValue::Float(number) => Some(Number::Float(*number)),
            FilledValue::Any(HoleKind::Float) => Some(Number::Float(1.0)),
            _ => None,
        };
        let Some(number) = number else {
            let problem = if whole_only {
                "compare it with a whole number"
            } else {
                "compare it with a number"
            };
            return Err(self.type_error(&written.span, path, problem));
        };
        let unit = written.unit.as_ref().map(|(unit, _)| *unit);
        let value = self.in_own_unit(path, number, written)?;
        Ok(Literal::Number(Quantity { written: number, unit, value }))
    }

    fn in_own_unit(
        &self,
        path: AttributePath,
        number: Number,
        written: &WrittenValue,
    ) -> Result<Number, Error> {
        let Some((Unit { factor, measures, .. }, span)) = &written.unit else { return Ok(number) };
        let value = match (path.kind(), measures) {
            (Kind::Bytes, Measure::Size) => number.times(*factor),
            (Kind::Frequency, Measure::Frequency) => {
                number.times(*factor).map(|hz| hz.over(HZ_PER_MHZ))
            }
            (Kind::Bytes, _) => {
                return Err(self.type_error(span, path, "its units are B to TB and KiB to TiB"));
            }
            (Kind::Frequency, _) => {
                return Err(self.type_error(span, path, "its units are Hz to GHz"));
            }
            _ => return Err(self.type_error(span, path, "it has no unit")),
        };
        let found = || self.text.get(written.span.clone()).unwrap_or_default().to_owned();
        value.ok_or_else(|| self.error(&written.span, ErrorKind::Number(found())))
    }

    fn filled(&self, written: &'a WrittenValue) -> Result<FilledValue<'a>, Error> {
        let sign = if written.negative { -1 } else { 1 };
        let (index, kind, in_quotes) = match &written.kind {
            WrittenValueKind::Bool(value) => return Ok(FilledValue::Bool(*value)),
            WrittenValueKind::Int(number) => {
                return Ok(FilledValue::Int(sign * i128::from(*number)));
            }
            WrittenValueKind::Dotted(text) => return Ok(FilledValue::Dotted(text)),
            WrittenValueKind::Text { text, quoted } => {
                return Ok(FilledValue::Text(text.into(), *quoted));
            }
            WrittenValueKind::Hole { index, kind, quoted } => (*index, *kind, *quoted),
        };
        let Some(values) = self.values else { return Ok(FilledValue::Any(kind)) };
        match values.get(index).filter(|value| kind.accepts(value)) {
            Some(Value::Int(number)) => Ok(FilledValue::Int(*number)),
            Some(Value::Float(number)) => Ok(FilledValue::Float(*number)),
            // A text that is not a single word can only be compared with a whole text.
            Some(Value::Text(text)) => {
                Ok(FilledValue::Text(text.as_ref().into(), in_quotes || !is_word(text)))
            }
            _ => Err(self
                .error(&written.span, ErrorKind::Value { hole: index + 1, takes: kind.takes() })),
        }
    }

    fn error(&self, span: &Span, kind: ErrorKind) -> Error {
        Error::new(self.text, span.clone(), kind)
    }

    fn type_error(&self, span: &Span, path: AttributePath, problem: &'static str) -> Error {
        let (attribute, is) = (path.attribute.name(), path.kind().describe());
        self.error(span, ErrorKind::Type { attribute, is, problem })
    }
}

fn text(filled: FilledValue<'_>) -> Option<TextLiteral> {
    match filled {
        FilledValue::Text(text, quoted) => Some(TextLiteral { text: text.into_owned(), quoted }),
        FilledValue::Any(HoleKind::Text) => Some(TextLiteral { text: String::new(), quoted: true }),
        _ => None,
    }
}

/// Parses a number with one point. With two points it would be a version.
fn float(text: &str, negative: bool) -> Option<f64> {
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    Some(if negative { -number } else { number })
}
