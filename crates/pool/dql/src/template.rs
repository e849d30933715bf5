//! Queries with holes for values.

use crate::check::check;
use crate::checked::Query;
use crate::error::{Error, ErrorKind};
use crate::hole::HoleKind;
use crate::lex::Percent;
use crate::syntax;
use crate::tree::Tree;
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
