//! The fields of calls as text, for people who read a trace.

use zerocopy::little_endian::{I32, U32, U64};

use crate::id::Id;
use crate::space::{IndexSpace, SpaceFrame, Triple};

/// A call as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub name: &'static str,
    /// Name and value of each field, in the order of the table.
    pub fields: Vec<(&'static str, String)>,
}

/// A field of a call, as text.
pub(super) trait Show {
    fn show(&self) -> String;
}

impl Show for U32 {
    fn show(&self) -> String {
        self.get().to_string()
    }
}

impl Show for U64 {
    fn show(&self) -> String {
        self.get().to_string()
    }
}

impl Show for I32 {
    fn show(&self) -> String {
        self.get().to_string()
    }
}

impl<K> Show for Id<K> {
    fn show(&self) -> String {
        if self.is_none() { "none".to_owned() } else { self.get().to_string() }
    }
}

impl Show for Triple {
    fn show(&self) -> String {
        format!("{:?}", self.map(U64::get))
    }
}

/// The global size, then `@` and the offset if it is not zero, then `/` and the local size if it is
/// given.
impl Show for SpaceFrame {
    fn show(&self) -> String {
        let IndexSpace { dims, offset, global, local } = (*self).into();
        let used = |sizes: [u64; 3]| -> Vec<u64> {
            sizes.into_iter().take(usize::try_from(dims).unwrap_or(3)).collect()
        };
        let mut text = format!("{:?}", used(global));
        if offset != [0; 3] {
            text.push_str(&format!("@{:?}", used(offset)));
        }
        if let Some(local) = local {
            text.push_str(&format!("/{:?}", used(local)));
        }
        text
    }
}
