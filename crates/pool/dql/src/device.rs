//! Devices as queries see them.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::attribute::Attribute;
use crate::kind::{Kind, NodeAttribute, Source};
use crate::value::{Value, Version};

/// A device that queries can select.
pub trait Device {
    /// Returns the value of an attribute, or `None` if it is unknown. A value that does not fit the
    /// attribute's type counts as unknown.
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>>;
}

impl<D: Device + ?Sized> Device for &D {
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>> {
        (**self).attribute(attribute)
    }
}

/// A device with listed values, for simulated devices and tests.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    values: HashMap<Attribute, Value<'static>>,
}

impl Listed {
    /// Creates a device without known values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a value.
    #[must_use]
    pub fn with(mut self, attribute: Attribute, value: Value<'static>) -> Self {
        self.values.insert(attribute, value);
        self
    }
}

impl Device for Listed {
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>> {
        self.values.get(&attribute).cloned()
    }
}

/// A device as its driver describes it: the answers of `clGetDeviceInfo`, and the properties of its
/// node.
#[derive(Clone, Copy, Debug)]
pub struct RawDevice<'a> {
    /// Query numbers (`CL_DEVICE_NAME`...) and answers, in the byte order of this host, with a
    /// `size_t` of 8 bytes.
    pub info: &'a [(u32, Vec<u8>)],
    /// Properties of the device's node.
    pub node: NodeFacts<'a>,
}

/// Properties of a device's node. [`NodeAttribute`] explains meanings and units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeFacts<'a> {
    pub hostname: Option<&'a str>,
    pub rank: Option<u64>,
    pub local: Option<bool>,
    pub platform: Option<&'a str>,
    pub platform_version: Option<&'a str>,
    pub device_index: Option<u64>,
    pub node_devices: Option<u64>,
    pub free_memory: Option<u64>,
    pub load: Option<f64>,
    pub link_bandwidth: Option<u64>,
    pub link_latency: Option<f64>,
    pub shared: Option<bool>,
}

impl Device for RawDevice<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>> {
        self.value(attribute)
    }
}

impl<'a> RawDevice<'a> {
    /// Returns the value of an attribute. The value may outlive this description.
    pub fn value(&self, attribute: Attribute) -> Option<Value<'a>> {
        match attribute.source() {
            Source::Info(name) => {
                let (_, bytes) = self.info.iter().find(|(known, _)| *known == name)?;
                decode(attribute.kind(), bytes)
            }
            Source::Node(attribute) => self.node.value(attribute),
        }
    }
}

impl<'a> NodeFacts<'a> {
    fn value(&self, attribute: NodeAttribute) -> Option<Value<'a>> {
        match attribute {
            NodeAttribute::Node => None,
            NodeAttribute::Hostname => self.hostname.map(Value::from),
            NodeAttribute::Rank => self.rank.map(Value::from),
            NodeAttribute::Local => self.local.map(Value::from),
            NodeAttribute::Platform => self.platform.map(Value::from),
            NodeAttribute::PlatformVersion => self.platform_version.map(Value::from),
            NodeAttribute::DeviceIndex => self.device_index.map(Value::from),
            NodeAttribute::NodeDevices => self.node_devices.map(Value::from),
            NodeAttribute::FreeMemory => self.free_memory.map(Value::from),
            NodeAttribute::Load => self.load.map(Value::from),
            NodeAttribute::LinkBandwidth => self.link_bandwidth.map(Value::from),
            NodeAttribute::LinkLatency => self.link_latency.map(Value::from),
            NodeAttribute::Shared => self.shared.map(Value::from),
        }
    }
}

const NAME_BYTES: usize = 64;

/// Size of a `cl_name_version`: a version and a name.
const NAME_VERSION_BYTES: usize = 4 + NAME_BYTES;

/// Decodes the driver's answer for a value of this type. An empty or too short answer gives `None`.
fn decode(kind: Kind, bytes: &[u8]) -> Option<Value<'_>> {
    match kind {
        Kind::Bool => number(bytes).map(|number| Value::Bool(number != 0)),
        Kind::Number
        | Kind::Bytes
        | Kind::Frequency
        | Kind::Real
        | Kind::Choice(_)
        | Kind::Type(_)
        | Kind::Flags(_) => number(bytes).map(Value::from),
        Kind::Text | Kind::Tokens | Kind::VersionText | Kind::Host | Kind::Node => {
            Some(Value::Text(text(bytes))).filter(|_| !bytes.is_empty())
        }
        Kind::Version => bytes.first_chunk().map(|bytes| Value::Version(version(*bytes))),
        Kind::Numbers | Kind::Choices(_) => {
            let words = bytes.as_chunks::<8>().0;
            Some(Value::Ints(words.iter().map(|word| u64::from_ne_bytes(*word).into()).collect()))
        }
        Kind::Names => Some(Value::Names(named(bytes).map(|(_, name)| text(name)).collect())),
        Kind::Versions => {
            Some(Value::Versions(named(bytes).map(|(packed, _)| version(*packed)).collect()))
        }
    }
}

/// Reads a number of 4 or 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4..8 => bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes).into()),
        _ => bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)),
    }
}

/// Reads a text that ends with a zero, without the spaces that some drivers put around it.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes.trim_ascii())
}

fn version(packed: [u8; 4]) -> Version {
    Version::from_cl(u32::from_ne_bytes(packed))
}

fn named(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    bytes.as_chunks::<NAME_VERSION_BYTES>().0.iter().filter_map(|entry| entry.split_first_chunk())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_drivers_are_read_by_type() {
        let number = Value::Int;
        let names =
            [&(3u32 << 22).to_ne_bytes()[..], b"cl_khr_fp64", &[0; NAME_BYTES - 11]].concat();
        for (kind, bytes, value) in [
            (Kind::Bool, &1u32.to_ne_bytes()[..], Some(Value::Bool(true))),
            (Kind::Bool, &0u32.to_ne_bytes(), Some(Value::Bool(false))),
            (Kind::Number, &7u32.to_ne_bytes(), Some(number(7))),
            (Kind::Bytes, &(1u64 << 40).to_ne_bytes(), Some(number(1 << 40))),
            (Kind::Bytes, &[], None),
            (Kind::Number, &[1, 2, 3], None),
            (Kind::Text, b" Tesla K20c \0rest", Some(Value::from("Tesla K20c"))),
            (Kind::Text, b"\0", Some(Value::from(""))),
            (Kind::Text, b"", None),
            (Kind::Version, &(3u32 << 22).to_ne_bytes(), Some(Value::Version(Version::new(3, 0)))),
            (Kind::Version, &[1], None),
            (
                Kind::Numbers,
                &[2u64.to_ne_bytes(), 3u64.to_ne_bytes()].concat(),
                Some(Value::Ints(vec![2, 3])),
            ),
            (Kind::Numbers, &[1, 2], Some(Value::Ints(vec![]))),
            (Kind::Names, &names, Some(Value::Names(vec!["cl_khr_fp64".into()]))),
            (Kind::Names, &names[..60], Some(Value::Names(vec![]))),
            (Kind::Versions, &names, Some(Value::Versions(vec![Version::new(3, 0)]))),
        ] {
            assert_eq!(decode(kind, bytes), value, "{kind:?} {bytes:?}");
        }
    }

    #[test]
    fn a_text_that_is_not_utf8_is_a_text_none_the_less() {
        assert_eq!(decode(Kind::Text, b"a\xff\0"), Some(Value::from("a\u{fffd}")));
    }

    #[test]
    fn each_fact_of_a_node_is_found_by_its_name() {
        let facts = NodeFacts {
            hostname: Some("h"),
            rank: Some(1),
            local: Some(true),
            platform: Some("p"),
            platform_version: Some("v"),
            device_index: Some(2),
            node_devices: Some(3),
            free_memory: Some(4),
            load: Some(0.5),
            link_bandwidth: Some(5),
            link_latency: Some(6.5),
            shared: Some(false),
        };
        let device = RawDevice { info: &[], node: facts };
        for attribute in Attribute::all() {
            let expected = match attribute.source() {
                Source::Info(_) | Source::Node(NodeAttribute::Node) => None,
                Source::Node(node) => facts.value(node),
            };
            assert_eq!(device.attribute(attribute), expected, "{attribute}");
            let is_fact =
                !matches!(attribute.source(), Source::Info(_) | Source::Node(NodeAttribute::Node));
            assert_eq!(expected.is_some(), is_fact, "{attribute}");
        }
    }
}
