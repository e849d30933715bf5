//! The attributes of devices.

use std::fmt;

use crate::kind::{Entry, Kind, Source};
use crate::suggest;
use crate::table::{ALIASES, ENTRIES};

/// An attribute of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attribute(u8);

impl Attribute {
    pub(crate) const RANK: Self = Self::known("rank");
    pub(crate) const HOSTNAME: Self = Self::known("hostname");
    pub(crate) const DEVICE_INDEX: Self = Self::known("device_index");
    pub(crate) const VENDOR: Self = Self::known("vendor");
    pub(crate) const VENDOR_ID: Self = Self::known("vendor_id");

    /// Returns all attributes, in table order.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..COUNT).map(Self)
    }

    /// Returns the short names, each with its attribute.
    pub fn aliases() -> impl Iterator<Item = (&'static str, Self)> {
        ALIASES.iter().filter_map(|(alias, name)| Some((*alias, Self::find(name)?)))
    }

    /// Returns the attribute with this name or short name. Case does not matter, and the prefix
    /// `CL_DEVICE_` is allowed.
    pub fn find(name: &str) -> Option<Self> {
        const PREFIX: &str = "CL_DEVICE_";
        let name = match name.split_at_checked(PREFIX.len()) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => rest,
            _ => name,
        };
        let name = ALIASES
            .iter()
            .find(|(alias, _)| alias.eq_ignore_ascii_case(name))
            .map_or(name, |(_, meant)| meant);
        Self::all().find(|attribute| attribute.name().eq_ignore_ascii_case(name))
    }

    /// Returns the name or short name that is most similar to `name`, if one is similar.
    pub(crate) fn like(name: &str) -> Option<&'static str> {
        suggest::nearest(
            name,
            ENTRIES.iter().map(|it| it.name).chain(ALIASES.iter().map(|it| it.0)),
        )
    }

    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns where the value comes from.
    pub fn source(self) -> Source {
        self.entry().source
    }

    pub fn kind(self) -> Kind {
        self.entry().kind
    }

    fn entry(self) -> &'static Entry {
        &ENTRIES[usize::from(self.0)]
    }

    /// Returns an attribute for use in this crate. A wrong name does not compile.
    const fn known(name: &str) -> Self {
        let mut index = 0u8;
        while (index as usize) < ENTRIES.len() {
            if same(ENTRIES[index as usize].name.as_bytes(), name.as_bytes()) {
                return Self(index);
            }
            index += 1;
        }
        panic!("no attribute has this name")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the next line sees to it")]
const COUNT: u8 = ENTRIES.len() as u8;
const _: () = assert!(COUNT as usize == ENTRIES.len());

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_small() {
        let mut names: Vec<_> =
            ENTRIES.iter().map(|it| it.name).chain(ALIASES.iter().map(|it| it.0)).collect();
        assert!(names.iter().all(|name| *name == name.to_lowercase()), "{names:?}");
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn no_query_of_the_driver_is_listed_twice() {
        let mut sources: Vec<_> = ENTRIES.iter().map(|it| format!("{:?}", it.source)).collect();
        let all = sources.len();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), all);
    }

    #[test]
    fn each_short_name_stands_for_an_attribute() {
        assert_eq!(Attribute::aliases().count(), ALIASES.len());
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for name in [
            "global_mem_size",
            "GLOBAL_MEM_SIZE",
            "CL_DEVICE_GLOBAL_MEM_SIZE",
            "global_memory",
            "memory",
        ] {
            assert_eq!(
                Attribute::find(name).map(Attribute::name),
                Some("global_mem_size"),
                "{name}"
            );
        }
        assert_eq!(Attribute::find("CL_DEVICE_"), None);
        assert_eq!(Attribute::find(""), None);
    }

    #[test]
    fn names_of_values_are_unique() {
        for attribute in Attribute::all() {
            let names = attribute.kind().names();
            for (at, one) in names.iter().enumerate() {
                assert!(
                    names[at + 1..]
                        .iter()
                        .all(|other| one.name != other.name && one.value != other.value),
                    "{attribute}: {one:?}"
                );
            }
        }
    }
}
