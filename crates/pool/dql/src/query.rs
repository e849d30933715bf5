//! The methods of queries: parsing, and the selection of devices.

use crate::check::check;
use crate::checked::{Query, Selection};
use crate::device::Device;
use crate::error::Error;
use crate::eval;
use crate::lex::Percent;
use crate::syntax;

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
