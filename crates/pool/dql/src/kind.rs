//! Sources and types of attributes.

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
    /// The caller's knowledge of the device's node, or of the device's place in it.
    Node(NodeAttribute),
}

/// Properties of a device that are not answers of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeAttribute {
    /// The node itself. Compared with a number it is the rank, with a text the host name. No
    /// [`crate::Device`] is asked for it.
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

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    Bool,
    /// A whole number without a unit.
    Number,
    /// A size, in bytes.
    Bytes,
    /// A frequency, in MHz.
    Frequency,
    /// Any number without a unit.
    Real,
    Text,
    /// Words with spaces or semicolons between them.
    Tokens,
    Version,
    /// A text that contains a version.
    VersionText,
    /// One of several names.
    Choice(&'static [Named]),
    /// One of several names, stored as bits. Usually one of them is set.
    Type(&'static [Named]),
    /// A set of names, stored as bits.
    Flags(&'static [Named]),
    /// A list of whole numbers. Its members are indexed from 0.
    Numbers,
    /// A list of named numbers.
    Choices(&'static [Named]),
    /// A list of names, each with a version (`cl_name_version`).
    Names,
    /// A list of versions (of `cl_name_version`).
    Versions,
    Host,
    /// A node: its rank or its host name.
    Node,
}

/// A name and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name in lower case.
    pub name: &'static str,
    /// The value in OpenCL.
    pub value: u64,
}

impl Kind {
    /// Describes a value of this type, for messages.
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

    /// Returns the names of this type's values.
    pub fn names(self) -> &'static [Named] {
        match self {
            Self::Choice(names) | Self::Type(names) | Self::Flags(names) | Self::Choices(names) => {
                names
            }
            _ => &[],
        }
    }
}
