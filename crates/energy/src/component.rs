//! What is measured, by what, and how.

use std::fmt;

use serde::{Serialize, Serializer};

/// Kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Class {
    /// A processor package: all that is in the socket, without memory modules.
    Package,
    /// The cores of a package. Part of it.
    Cores,
    /// What the package calls uncore; on notebooks the graphics unit. Part of it.
    Uncore,
    /// The memory modules of a package. Not part of it.
    Dram,
    /// The whole board or node, as it counts itself. Has packages in it.
    Platform,
    /// An accelerator card.
    Gpu,
    /// A part of an accelerator that is counted as a whole too.
    GpuPart,
    /// A sensor of which nobody says what it covers.
    Sensor,
}

impl Class {
    /// Those that totals are made of: none of them is part of another.
    pub const IN_TOTAL: [Self; 3] = [Self::Package, Self::Dram, Self::Gpu];

    /// Whether it is added to totals.
    #[must_use]
    pub fn is_in_total(self) -> bool {
        Self::IN_TOTAL.contains(&self)
    }

    /// Its name, which is also that of all components of the class together.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Cores => "cores",
            Self::Uncore => "uncore",
            Self::Dram => "dram",
            Self::Platform => "platform",
            Self::Gpu => "gpu",
            Self::GpuPart => "gpu part",
            Self::Sensor => "sensor",
        }
    }
}

/// What is measured. Two channels of equal components measure the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// Its kind.
    pub class: Class,
    /// Its name: "package-0", "dram-0", "gpu-1".
    pub name: String,
}

impl Component {
    /// A component.
    pub(crate) fn new(class: Class, name: impl Into<String>) -> Self {
        Self { class, name: name.into() }
    }

    /// All of a class: for a source that is missing as a whole.
    pub(crate) fn all(class: Class) -> Self {
        Self::new(class, class.name())
    }

    /// Whether it stands for all of its class.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.name == self.class.name()
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Where figures come from. The order is that of trust: of two sources of one component the first is used for totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// NVIDIA's management library.
    Nvml,
    /// RAPL of Intel and AMD through `/sys/class/powercap`.
    Powercap,
    /// RAPL through the perf events of the PMU `power`.
    Perf,
    /// Drivers' sensors in `/sys/class/hwmon`.
    Hwmon,
}

impl Source {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Powercap => "powercap",
            Self::Perf => "perf",
            Self::Hwmon => "hwmon",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How joules are taken. Counters are trusted more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// An energy counter: its difference.
    Counter,
    /// Samples of power, integrated.
    Samples,
}

impl Method {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Samples => "samples",
        }
    }
}
