//! Queries with holes for values.

use crate::check::check;
use crate::error::{Error, ErrorKind};
use crate::lex::Percent;
use crate::query::Query;
use crate::syntax::{self, Tree};
use crate::value::Value;

/// A query with holes, written as for `printf`: `%d %i %u %x %ld %lu %zu %lld %llu %s %f %g`. In
/// quotes `%%` is a percent sign, and `'%s'` a hole for a quoted text.
///
/// The text is parsed before there are values, and each value becomes one literal whatever it
/// contains.
///
/// ```
/// use penstock_dql::{Template, Value};
///
/// let template = Template::parse("SELECT POS 1 FROM NODE %d WHERE global_memory > 1024MB")?;
/// let query = template.bind(&[Value::Int(3)])?;
/// assert_eq!(query.to_string(), "SELECT POS 1 FROM NODE 3 WHERE global_mem_size > 1024MB");
/// # Ok::<(), penstock_dql::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    tree: Tree,
    holes: Vec<HoleKind>,
}

/// The C type that a hole takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoleKind {
    /// `%d`, `%i`: takes an `int`.
    Int,
    /// `%u`: takes an `unsigned`.
    Unsigned,
    /// `%x`: takes an `unsigned`.
    Hex,
    /// `%ld`: takes a `long`.
    Long,
    /// `%lu`: takes an `unsigned long`.
    UnsignedLong,
    /// `%zu`: takes a `size_t`.
    Size,
    /// `%lld`: takes a `long long`.
    LongLong,
    /// `%llu`: takes an `unsigned long long`.
    UnsignedLongLong,
    /// `%s`: takes a text.
    Text,
    /// `%f`, `%g`: takes a `double`.
    Float,
}

impl HoleKind {
    /// Whether the hole takes a whole number.
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::Text | Self::Float)
    }

    /// Describes the accepted values, for messages.
    pub(crate) fn takes(self) -> &'static str {
        match self {
            Self::Int => "a whole number of 32 bits",
            Self::Unsigned | Self::Hex => "a whole number of 32 bits that is not negative",
            Self::Long | Self::LongLong => "a whole number of 64 bits",
            Self::UnsignedLong | Self::Size | Self::UnsignedLongLong => {
                "a whole number of 64 bits that is not negative"
            }
            Self::Text => "a text",
            Self::Float => "a finite number",
        }
    }

    pub(crate) fn accepts(self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Int, Value::Int(value)) => i32::try_from(*value).is_ok(),
            (Self::Unsigned | Self::Hex, Value::Int(value)) => u32::try_from(*value).is_ok(),
            (Self::Long | Self::LongLong, Value::Int(value)) => i64::try_from(*value).is_ok(),
            (Self::UnsignedLong | Self::Size | Self::UnsignedLongLong, Value::Int(value)) => {
                u64::try_from(*value).is_ok()
            }
            (Self::Text, Value::Text(_)) => true,
            (Self::Float, Value::Float(value)) => value.is_finite(),
            _ => false,
        }
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// The text is not a template. All errors that do not depend on values are found here.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (tree, holes) = syntax::parse(text, Percent::Template)?;
        check(text, &tree, None)?;
        Ok(Self { text: text.to_owned(), tree, holes })
    }

    /// Returns the kinds of the holes, in the order of the text.
    pub fn holes(&self) -> &[HoleKind] {
        &self.holes
    }

    /// Returns the query with `values` in the holes.
    ///
    /// # Errors
    /// The number of values differs from the number of holes, or a value does not fit its hole.
    pub fn bind(&self, values: &[Value<'_>]) -> Result<Query, Error> {
        if values.len() != self.holes.len() {
            let kind = ErrorKind::ValueCount { holes: self.holes.len(), values: values.len() };
            return Err(Error::new(&self.text, 0..0, kind));
        }
        check(&self.text, &self.tree, Some(values))
    }
}
