//! What a check found.

use serde::Serialize;

/// How bad a finding is. The order is that of the exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A property to know about. Nothing has to be done.
    Note,
    /// Something costs speed, or a feature does not work.
    Warning,
    /// Devices are missing, or programs fail.
    Error,
}

impl Severity {
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Note];

    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// Returns the exit status of a command whose worst finding this is.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Note => 0,
            Self::Warning => 1,
            Self::Error => 2,
        }
    }
}

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    Devices,
    OpenCl,
    Pool,
    Pci,
    Iommu,
    Virtualisation,
    Domains,
    Numa,
    Memory,
    Processors,
    Limits,
    Network,
    GpuDirect,
    Launchers,
}

impl Topic {
    pub const ALL: [Self; 14] = [
        Self::Devices,
        Self::OpenCl,
        Self::Pool,
        Self::Pci,
        Self::Iommu,
        Self::Virtualisation,
        Self::Domains,
        Self::Numa,
        Self::Memory,
        Self::Processors,
        Self::Limits,
        Self::Network,
        Self::GpuDirect,
        Self::Launchers,
    ];

    /// Returns the heading of the topic's findings.
    pub fn title(self) -> &'static str {
        match self {
            Self::Devices => "Accelerators and their drivers",
            Self::OpenCl => "OpenCL",
            Self::Pool => "The pool",
            Self::Pci => "PCI Express",
            Self::Iommu => "IOMMU",
            Self::Virtualisation => "Virtual machines and containers",
            Self::Domains => "libvirt's domains",
            Self::Numa => "NUMA",
            Self::Memory => "Memory",
            Self::Processors => "Processors and clock",
            Self::Limits => "Limits",
            Self::Network => "Network",
            Self::GpuDirect => "GPUDirect",
            Self::Launchers => "MPI and Slurm",
        }
    }
}

/// One thing that a check found. The names of the fields are those of `penstock doctor --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Identifier of the check.
    pub check: &'static str,
    pub topic: Topic,
    pub severity: Severity,
    /// Path from which it was read, relative to the root.
    #[serde(rename = "where")]
    pub place: String,
    /// What was seen.
    pub seen: String,
    /// Why it matters, with the cost where it is known.
    pub why: String,
    /// What the reader can do: a command, or a change of a file or of the firmware.
    pub repair: String,
}
