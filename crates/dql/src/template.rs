//! Queries with holes.

use crate::check::check;
use crate::error::{Error, ErrorKind};
use crate::lex::Percent;
use crate::query::Query;
use crate::syntax::{self, Tree};
use crate::value::Value;

/// A query with holes, written as for `printf`: `%d %i %u %x %ld %lu %zu %lld %llu %s %f %g`. In quotes `%%` is a percent
/// sign, and `'%s'` a hole whose value stands for a quoted text.
///
/// The text is understood before any value is there, and a value becomes one literal whatever is in it.
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

/// What a hole takes, named as C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoleKind {
    /// `%d`, `%i`: `int`.
    Int,
    /// `%u`: `unsigned`.
    Unsigned,
    /// `%x`: `unsigned`.
    Hex,
    /// `%ld`: `long`.
    Long,
    /// `%lu`: `unsigned long`.
    UnsignedLong,
    /// `%zu`: `size_t`.
    Size,
    /// `%lld`: `long long`.
    LongLong,
    /// `%llu`: `unsigned long long`.
    UnsignedLongLong,
    /// `%s`: a text.
    Text,
    /// `%f`, `%g`: `double`.
    Float,
}

impl HoleKind {
    /// Whether it takes a whole number.
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::Text | Self::Float)
    }

    /// What it takes, for messages.
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
    /// The template that `text` is.
    ///
    /// # Errors
    /// If it is none: whatever is wrong with it that does not depend on the values.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (tree, holes) = syntax::parse(text, Percent::Template)?;
        check(text, &tree, None)?;
        Ok(Self { text: text.to_owned(), tree, holes })
    }

    /// The holes, in the order of the text.
    pub fn holes(&self) -> &[HoleKind] {
        &self.holes
    }

    /// The query with `values` in the holes.
    ///
    /// # Errors
    /// If there are more or fewer values than holes, or one does not go into its hole.
    pub fn bind(&self, values: &[Value<'_>]) -> Result<Query, Error> {
        if values.len() != self.holes.len() {
            let kind = ErrorKind::ValueCount { holes: self.holes.len(), values: values.len() };
            return Err(Error::new(&self.text, 0..0, kind));
        }
        check(&self.text, &self.tree, Some(values))
    }
}
