//! Guests of other people's making: a libvirt domain, and QEMU's command line for the same guest.
//!
//! [`plan`] decides what the guest has, by the facts of the host. [`Definition`] is the result.
//! Both texts are made from it alone, so they cannot disagree about what the guest is.

mod command;
mod domain;
mod element;
mod plan;

use std::fmt;
use std::path::PathBuf;

pub use element::Element;
pub use plan::{PlanError, Wishes, plan};

use crate::machine::{Accelerator, SharedMemory};

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub accelerator: Accelerator,
    /// QEMU on the host.
    pub emulator: PathBuf,
    pub cpus: u32,
    /// The CPU of the host for each CPU of the guest. Empty if they are not pinned.
    pub pins: Vec<u32>,
    pub memory_mib: u64,
    /// NUMA node of the memory.
    pub node: Option<u32>,
    pub huge_pages: bool,
    /// Number of the guest for vsock, if the guest has vsock.
    pub cid: Option<u32>,
    /// Memory that the guest shares with the host, if it has some.
    pub memory: Option<SharedMemory>,
    /// Whether the guest has a network card behind QEMU's user-mode network.
    pub network: bool,
    pub disk: Option<Disk>,
    /// Devices of the host that the guest gets.
    pub devices: Vec<Address>,
    /// Whether the guest has an IOMMU itself.
    pub virtual_iommu: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    pub format: DiskFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFormat {
    Raw,
    Qcow2,
}

impl DiskFormat {
    /// Returns the word of QEMU and libvirt for the format.
    fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Address of a PCI device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub domain: u32,
    pub bus: u32,
    pub slot: u32,
    pub function: u32,
}

impl Address {
    /// Reads an address such as `0000:65:00.0`, or `65:00.0` in the first domain.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts: Vec<&str> = rest.split(':').collect();
        if parts.len() == 2 {
            parts.insert(0, "0");
        }
        let [domain, bus, slot] = parts[..] else { return None };
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        Some(Self {
            domain: hex(domain)?,
            bus: hex(bus)?,
            slot: hex(slot)?,
            function: hex(function)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, slot, function } = self;
        write!(target, "{domain:04x}:{bus:02x}:{slot:02x}.{function:x}")
    }
}

impl Definition {
    /// Returns the domain for libvirt.
    pub fn domain(&self) -> Element {
        domain::of(self)
    }

    /// Returns the words of the command that starts the guest: QEMU, and before it the program that
    /// pins its threads.
    pub fn command(&self) -> Vec<String> {
        command::of(self)
    }

    /// Returns the command as a shell's script, with what must be done before.
    pub fn script(&self) -> String {
        command::script(self)
    }

    /// Returns what the host and the guest do so that programs in the guest find the pool.
    fn steps(&self) -> String {
        let gateway = crate::machine::network::GATEWAY;
        let (listen, nodes) = match self.cid {
            Some(_) => ("vsock:7367", "vsock:2".to_owned()),
            None => ("tcp:127.0.0.1:7367", format!("tcp:{gateway}:7367")),
        };
        // The text stands in a comment of XML, where options with two hyphens must not.
        let memory = self.memory.as_ref().map(|SharedMemory { path, bytes }| {
            let size = bytes >> 20;
            format!(", its option guest-memory is {listen}={},size={size}M", path.display())
        });
        format!(
            "the daemon on the host listens on {listen}{}, and programs in the guest have \
             PENSTOCK_NODES={nodes}",
            memory.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, whole) in [("0000:65:00.0", "0000:65:00.0"), ("65:1f.7", "0000:65:1f.7")] {
            assert_eq!(Address::read(text).unwrap().to_string(), whole);
        }
        for wrong in ["", "65", "65:00", "x:00.0", "0:0:0:0.0"] {
            assert_eq!(Address::read(wrong), None, "{wrong}");
        }
    }
}
