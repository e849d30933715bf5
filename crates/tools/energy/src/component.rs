//! Components, sources and methods of measurements.

use std::fmt;

use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Class {
    /// A processor package: the whole socket without memory modules.
    Package,
    /// The cores of a package, which are part of it.
    Cores,
    /// The uncore of a package, which is part of it. On notebooks, this is the graphics unit.
    Uncore,
    /// The memory modules of a package, which are not part of it.
    Dram,
    /// The whole board or node by its own counter, including its packages.
    Platform,
    Gpu,
    /// A part of an accelerator that also has a counter for the whole card.
    GpuPart,
    /// A sensor that does not say what it covers.
    Sensor,
}

impl Class {
    /// The classes that totals are made of. None of them is part of another.
    pub const IN_TOTAL: [Self; 3] = [Self::Package, Self::Dram, Self::Gpu];

    /// Whether totals include components of this class.
    #[must_use]
    pub fn is_in_total(self) -> bool {
        Self::IN_TOTAL.contains(&self)
    }

    /// Returns the name of the class, which also stands for all components of the class.
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

/// A measured part of the node. Two channels with equal components measure the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    pub class: Class,
    /// Name, for example "package-0", "dram-0" or "gpu-1".
    pub name: String,
}

impl Component {
    pub(crate) fn new(class: Class, name: impl Into<String>) -> Self {
        Self { class, name: name.into() }
    }

    /// Returns a component that stands for a whole class, for a source that is missing entirely.
    pub(crate) fn all(class: Class) -> Self {
        Self::new(class, class.name())
    }

    /// Whether the component stands for its whole class.
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

/// Source of figures. Totals use the first source of a component: the order is that of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    Nvml,
    /// RAPL of Intel and AMD, through `/sys/class/powercap`.
    Powercap,
    /// RAPL, through the perf events of the PMU `power`.
    Perf,
    /// Sensors of drivers, in `/sys/class/hwmon`.
    Hwmon,
}

impl Source {
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

/// How joules are determined. Counters are trusted more than samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// The difference of two readings of an energy counter.
    Counter,
    /// The integral over samples of power.
    Samples,
}

impl Method {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Samples => "samples",
        }
    }
}
