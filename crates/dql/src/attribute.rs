//! What can be asked of a device.

use std::fmt;

use crate::attributes::{ALIASES, ENTRIES};
use crate::suggest;

/// An attribute of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attribute(u8);

/// A row of the table of attributes.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) kind: Kind,
}

/// Where the value of an attribute comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The driver's answer to this query of `clGetDeviceInfo`.
    Info(u32),
    /// What the caller knows of the device's node, or of the device's place in it.
    Node(NodeAttribute),
}

/// What is known of a device apart from its driver's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeAttribute {
    /// Never asked of a [`crate::Device`]: compared with a number it is the rank, with a text the host name.
    Node,
    /// Host name of the node.
    Hostname,
    /// Index of the node in the pool, from 0.
    Rank,
    /// Whether the node is on this host.
    Local,
    /// Name of the device's platform.
    Platform,
    /// `CL_PLATFORM_VERSION` of the device's platform.
    PlatformVersion,
    /// Index of the device in its node, over all platforms, from 0.
    DeviceIndex,
    /// Number of devices of the node.
    NodeDevices,
    /// Free global memory, in bytes.
    FreeMemory,
    /// Share of the node's processors that is busy; 1 means all.
    Load,
    /// Bandwidth from here to the node, in bytes per second.
    LinkBandwidth,
    /// Latency from here to the node, in µs.
    LinkLatency,
    /// Whether the device computes on the memory of its node's host.
    Shared,
}

/// Type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `TRUE` or `FALSE`.
    Bool,
    /// A whole number.
    Number,
    /// A size, in bytes.
    Bytes,
    /// A frequency, in MHz.
    Frequency,
    /// Any number.
    Real,
    /// A text.
    Text,
    /// Words with spaces or semicolons between them.
    Tokens,
    /// A version.
    Version,
    /// A text with a version in it.
    VersionText,
    /// One of several names.
    Choice(&'static [Named]),
    /// One of several names, stored as a set of bits of which mostly one is set.
    Type(&'static [Named]),
    /// A set of names, stored as bits.
    Flags(&'static [Named]),
    /// A list of whole numbers, whose members have an index from 0.
    Numbers,
    /// A list of named numbers.
    Choices(&'static [Named]),
    /// A list of names, each with a version (`cl_name_version`).
    Names,
    /// A list of versions (of `cl_name_version`).
    Versions,
    /// A host name.
    Host,
    /// A node: its rank or its host name.
    Node,
}

/// A name and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// In small letters.
    pub name: &'static str,
    /// As in OpenCL.
    pub value: u64,
}

impl Attribute {
    pub(crate) const RANK: Self = Self::known("rank");
    pub(crate) const HOSTNAME: Self = Self::known("hostname");
    pub(crate) const DEVICE_INDEX: Self = Self::known("device_index");
    pub(crate) const VENDOR: Self = Self::known("vendor");
    pub(crate) const VENDOR_ID: Self = Self::known("vendor_id");

    /// All attributes.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..COUNT).map(Self)
    }

    /// Short names, each with the attribute that it stands for.
    pub fn aliases() -> impl Iterator<Item = (&'static str, Self)> {
        ALIASES.iter().filter_map(|(alias, name)| Some((*alias, Self::find(name)?)))
    }

    /// The attribute of this name or short name, in letters of any case; `CL_DEVICE_` before it is allowed.
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

    /// The name or short name that is most like `name`, if any is.
    pub(crate) fn like(name: &str) -> Option<&'static str> {
        suggest::nearest(
            name,
            ENTRIES.iter().map(|it| it.name).chain(ALIASES.iter().map(|it| it.0)),
        )
    }

    /// Its name, in small letters.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Where its value comes from.
    pub fn source(self) -> Source {
        self.entry().source
    }

    /// Its type.
    pub fn kind(self) -> Kind {
        self.entry().kind
    }

    fn entry(self) -> &'static Entry {
        &ENTRIES[usize::from(self.0)]
    }

    /// For names in this crate: a wrong one does not compile.
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

impl Kind {
    /// What a value of this type is, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bool => "TRUE or FALSE",
            Self::Number => "a whole number",
            Self::Bytes => "a size in bytes",
            Self::Frequency => "a frequency in MHz",
            Self::Real => "a number",
            Self::Text => "a text",
            Self::Tokens => "a set of words",
            Self::Version => "a version",
            Self::VersionText => "a text with a version in it",
            Self::Choice(_) | Self::Type(_) => "one of several names",
            Self::Flags(_) => "a set of flags",
            Self::Numbers => "a list of numbers",
            Self::Choices(_) | Self::Names => "a list of names",
            Self::Versions => "a list of versions",
            Self::Host => "a host name",
            Self::Node => "a node's rank or host name",
        }
    }

    /// The names that its values have.
    pub fn names(self) -> &'static [Named] {
        match self {
            Self::Choice(names) | Self::Type(names) | Self::Flags(names) | Self::Choices(names) => {
                names
            }
            _ => &[],
        }
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
