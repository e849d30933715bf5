//! PCI devices.

use crate::limits::PCI_DEVICES_MAX;
use crate::tree::{Tree, keep};

const DEVICES: &str = "sys/bus/pci/devices";

/// The maker of an accelerator, as far as checks differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    Nvidia,
    Amd,
    Intel,
    Other,
}

#[derive(Clone, Debug, Default)]
pub struct Pci {
    /// Domain, bus, device and function, such as `0000:65:00.0`.
    pub address: String,
    /// Class, subclass and interface: three bytes.
    pub class: u32,
    pub vendor: u32,
    pub device: u32,
    /// Name of the driver that is bound to the device.
    pub driver: Option<String>,
    /// NUMA node. `None` if the firmware names none.
    pub numa: Option<u32>,
    /// Speed of the link in GT/s, now and at most.
    pub speed: Option<f64>,
    pub speed_max: Option<f64>,
    /// Number of lanes of the link, now and at most.
    pub width: Option<u64>,
    pub width_max: Option<u64>,
    pub bars: Vec<Bar>,
    /// Number of the IOMMU group.
    pub group: Option<String>,
    /// Kind of the group's translation, such as `DMA-FQ` or `identity`.
    pub group_type: Option<String>,
    /// Number of virtual functions that the device could have.
    pub functions_max: u64,
    /// Number of virtual functions that the device has.
    pub functions: u64,
    /// Whether the device is itself a virtual function.
    pub is_function: bool,
    /// Addresses of the bridges above the device, the root port first.
    pub bridges: Vec<String>,
    pub acs: Option<Acs>,
    /// Bytes of the device's own memory, if its driver says so.
    pub memory: Option<u64>,
}

/// A region of a device in the address space of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub index: usize,
    pub bytes: u64,
    pub is_64_bit: bool,
    pub is_prefetchable: bool,
    /// Whether the firmware gave it no address.
    pub is_unset: bool,
}

/// Access control services of a bridge: what it can do, and what is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acs {
    pub can: u16,
    pub on: u16,
}

impl Acs {
    /// Source validation, request redirect, completion redirect and upstream forwarding: what Linux
    /// requires of a bridge that isolates.
    pub const ISOLATES: u16 = 0b1_1101;
    /// Request redirect and completion redirect: transfers between devices go up to the root.
    pub const REDIRECTS: u16 = 0b0_1100;

    pub fn isolates(self) -> bool {
        // A function that is absent because the bridge cannot do the opposite need not be on.
        self.on & Self::ISOLATES == Self::ISOLATES & self.can
    }
}

impl Pci {
    pub fn path(&self) -> String {
        format!("{DEVICES}/{}", self.address)
    }

    pub fn maker(&self) -> Maker {
        match self.vendor {
            0x10de => Maker::Nvidia,
            0x1002 => Maker::Amd,
            0x8086 => Maker::Intel,
            _ => Maker::Other,
        }
    }

    /// Returns whether this is a GPU of a maker of accelerators, or a processing accelerator. The
    /// display controllers of servers' management processors are none.
    pub fn is_accelerator(&self) -> bool {
        let is_display = self.class >> 16 == 0x03 && self.maker() != Maker::Other;
        is_display || self.class >> 16 == 0x12
    }

    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }

    /// Returns whether this is a network card for Ethernet or InfiniBand.
    pub fn is_network(&self) -> bool {
        self.class >> 16 == 0x02
    }

    /// Returns whether the device is set aside for guests.
    pub fn is_for_guests(&self) -> bool {
        self.driver.as_deref() == Some("vfio-pci")
    }

    /// Returns whether the other device is a function of the same card.
    pub fn shares_card(&self, other: &Self) -> bool {
        let card = |device: &Self| device.address.rsplit_once('.').map(|it| it.0.to_owned());
        card(self) == card(other)
    }

    /// Returns a name for findings.
    pub fn name(&self) -> String {
        let maker = match self.maker() {
            Maker::Nvidia => "NVIDIA",
            Maker::Amd => "AMD",
            Maker::Intel => "Intel",
            Maker::Other => "other",
        };
        let kind = match self.class >> 16 {
            0x03 => "GPU",
            0x02 => "network card",
            0x12 => "accelerator",
            _ => "device",
        };
        if self.maker() == Maker::Other || self.is_network() {
            return format!("{kind} {} ({:04x}:{:04x})", self.address, self.vendor, self.device);
        }
        format!("{maker} {kind} {} ({:04x}:{:04x})", self.address, self.vendor, self.device)
    }

    /// Returns the largest region of the device.
    pub fn largest_bar(&self) -> Option<Bar> {
        self.bars.iter().copied().max_by_key(|bar| bar.bytes)
    }
}

/// Reads all PCI devices.
pub fn read(tree: &Tree) -> Vec<Pci> {
    let there = |name: &String| is_address(name) && tree.exists(&format!("{DEVICES}/{name}"));
    let names = tree.list(DEVICES).into_iter().filter(there);
    names.take(PCI_DEVICES_MAX).map(|address| device(tree, address)).collect()
}

fn device(tree: &Tree, address: String) -> Pci {
    let at = |name: &str| format!("{DEVICES}/{address}/{name}");
    let line = |name: &str| tree.read(&at(name), keep::line);
    let hex = |name: &str| {
        let text = line(name)?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    let count = |name: &str| super::files::count(tree, &at(name));
    let class = hex("class").unwrap_or_default();
    let is_bridge = class >> 16 == 0x06;
    let path = tree.target(&at("")).unwrap_or_default();
    let mut bridges: Vec<String> =
        path.split('/').filter(|name| is_address(name)).map(str::to_owned).collect();
    bridges.pop();
    Pci {
        class,
        vendor: hex("vendor").unwrap_or_default(),
        device: hex("device").unwrap_or_default(),
        driver: tree.target_name(&at("driver")),
        numa: count("numa_node").and_then(|node| u32::try_from(node).ok()),
        speed: line("current_link_speed").and_then(|text| speed(&text)),
        speed_max: line("max_link_speed").and_then(|text| speed(&text)),
        width: count("current_link_width").filter(|width| *width > 0),
        // A port without a link says 255.
        width_max: count("max_link_width").filter(|width| (1..=32).contains(width)),
        bars: tree.read(&at("resource"), keep::numbers).map_or_else(Vec::new, |text| bars(&text)),
        group: tree.target_name(&at("iommu_group")),
        group_type: line("iommu_group/type"),
        functions_max: count("sriov_totalvfs").unwrap_or_default(),
        functions: count("sriov_numvfs").unwrap_or_default(),
        is_function: tree.exists(&at("physfn")),
        acs: if is_bridge { acs(tree, &at("config")) } else { None },
        memory: count("mem_info_vram_total"),
        bridges,
        address,
    }
}

/// Returns whether a name is an address such as `0000:65:00.0`.
fn is_address(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let mut is_hex = |least: usize, most: usize| {
        parts.next().is_some_and(|part| {
            (least..=most).contains(&part.len()) && part.chars().all(|it| it.is_ascii_hexdigit())
        })
    };
    is_hex(4, 8) && is_hex(2, 2) && is_hex(2, 2) && is_hex(1, 1) && parts.next().is_none()
}

/// Reads a speed such as `16.0 GT/s PCIe`.
fn speed(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|speed: &f64| *speed > 0.0)
}

/// Reads the first six lines of `resource`: start, end and flags of each region.
fn bars(text: &str) -> Vec<Bar> {
    // From the kernel's include/linux/ioport.h.
    const MEMORY: u64 = 0x200;
    const PREFETCH: u64 = 0x2000;
    const MEMORY_64: u64 = 0x10_0000;
    const UNSET: u64 = 0x2000_0000;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let bar = |(index, line): (usize, &str)| {
        let words: Vec<u64> = line.split_whitespace().filter_map(number).collect();
        let [start, end, flags] = <[u64; 3]>::try_from(words).ok()?;
        (flags & MEMORY != 0 && end >= start && (end > 0)).then(|| Bar {
            index,
            bytes: (end - start).saturating_add(1),
            is_64_bit: flags & MEMORY_64 != 0,
            is_prefetchable: flags & PREFETCH != 0,
            is_unset: flags & UNSET != 0,
        })
    };
    text.lines().take(6).enumerate().filter_map(bar).collect()
}

fn acs(tree: &Tree, path: &str) -> Option<Acs> {
    let config = tree.read_pci_config(path)?;
    let (at, _) = keep::capabilities(&config).into_iter().find(|(_, id)| *id == keep::ACS)?;
    let registers = keep::word(&config, at + 4)?;
    Some(Acs { can: (registers & 0xffff) as u16, on: (registers >> 16) as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_names() {
        assert!(is_address("0000:65:00.0") && is_address("10000:e1:1f.7"));
        assert!(!is_address("pci0000:64") && !is_address("0000:65:00") && !is_address("driver"));
    }

    #[test]
    fn regions_have_sizes_and_kinds() {
        let text = "0x00000000fa000000 0x00000000faffffff 0x0000000000040200\n\
                    0x0000003800000000 0x0000003bffffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000";
        let bars = bars(text);
        assert_eq!(bars.len(), 2);
        assert_eq!((bars[0].bytes, bars[0].is_64_bit), (16 << 20, false));
        assert_eq!(
            (bars[1].bytes, bars[1].is_64_bit, bars[1].is_prefetchable),
            (16 << 30, true, true)
        );
    }
}
