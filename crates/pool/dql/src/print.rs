//! Formats the canonical text of a query.

use std::fmt;

use crate::checked::{
    AttributePath, Filter, Literal, NodeFilter, OrderBy, Quantity, Query, Selection, Test,
    TextLiteral,
};
use crate::value::Number;

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selection {
            Selection::All => write!(f, "SELECT ALL")?,
            Selection::Top(count) => write!(f, "SELECT TOP {count}")?,
            Selection::Position(position) => write!(f, "SELECT POS {position}")?,
        }
        if !self.nodes.is_empty() {
            write!(f, " FROM NODE ")?;
            list(f, &self.nodes)?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if !self.order.is_empty() {
            write!(f, " ORDER BY ")?;
            list(f, &self.order)?;
        }
        Ok(())
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    joined(f, items, ", ", |_| false)
}

/// Writes items with `between` them, some of them in parentheses.
fn joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    between: &str,
    in_parentheses: impl Fn(&T) -> bool,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        let between = if index == 0 { "" } else { between };
        if in_parentheses(item) {
            write!(f, "{between}({item})")?
        } else {
            write!(f, "{between}{item}")?
        }
    }
    Ok(())
}

impl fmt::Display for NodeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(first, last) if first == last => write!(f, "{first}"),
            Self::Ranks(first, last) => write!(f, "{first}-{last}"),
            Self::Host(name) => write!(f, "{name}"),
        }
    }
}

impl fmt::Display for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.descending { " DESC" } else { "" })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(filters) => joined(f, filters, " OR ", |_| false),
            Self::All(filters) => {
                joined(f, filters, " AND ", |filter| matches!(filter, Self::Any(_)))
            }
            Self::Test(path, test) => print_test(f, *path, test, ""),
            Self::Not(filter) => match &**filter {
                Self::Any(_) | Self::All(_) => write!(f, "NOT ({filter})"),
                // These read better with the NOT inside, and mean the same.
                Self::Test(path, test) if !matches!(test, Test::Is | Test::Compare(..)) => {
                    print_test(f, *path, test, "NOT ")
                }
                Self::Test(..) | Self::Not(_) => write!(f, "NOT {filter}"),
            },
        }
    }
}

fn print_test(
    f: &mut fmt::Formatter<'_>,
    path: AttributePath,
    test: &Test,
    not: &str,
) -> fmt::Result {
    match test {
        Test::Is => write!(f, "{path}"),
        Test::Compare(compare, literal) => write!(f, "{path} {} {literal}", compare.sign()),
        Test::Like(pattern) => {
            write!(f, "{path} {not}LIKE ")?;
            quoted(f, pattern)
        }
        Test::In(literals) => {
            write!(f, "{path} {not}IN (")?;
            list(f, literals)?;
            write!(f, ")")
        }
        Test::Between(low, high) => write!(f, "{path} {not}BETWEEN {low} AND {high}"),
        Test::Has(literal) => write!(f, "{path} {not}HAS {literal}"),
        Test::Null => write!(f, "{path} IS {not}NULL"),
    }
}

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.attribute),
            None => write!(f, "{}", self.attribute),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            Self::Number(Quantity { written, unit, .. }) => {
                write!(f, "{written}{}", unit.map_or("", |unit| unit.name))
            }
            Self::Version(version) => write!(f, "{version}"),
            Self::Text(text) => write!(f, "{text}"),
            Self::Name { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Display for TextLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quoted { quoted(f, &self.text) } else { f.write_str(&self.text) }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            // Without a point it would be parsed as a whole number.
            Self::Float(number) if number.fract() == 0.0 => write!(f, "{number:.1}"),
            Self::Float(number) => write!(f, "{number}"),
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "'{}'", text.replace('\'', "''"))
}
