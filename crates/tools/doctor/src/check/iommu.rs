//! The IOMMU, its groups, and access control services of bridges.

use super::define::{Check, Seen, when};
use crate::facts::{Acs, Facts, Pci};
use crate::finding::Severity::{Error, Note, Warning};
use crate::finding::Topic::Iommu;

pub const CHECKS: &[Check] = &[
    Check {
        id: "iommu-off",
        topic: Iommu,
        severity: Note,
        title: "The IOMMU is off.",
        why: "Devices cannot be passed to guests, and no device is kept from the memory of others.",
        find: iommu_off,
    },
    Check {
        id: "iommu-translates",
        topic: Iommu,
        severity: Note,
        title: "The IOMMU translates the addresses of an accelerator that this host uses itself.",
        why: "Each transfer of the host's own drivers goes through the translation, and NVIDIA \
              supports GPUDirect only without it. `iommu=pt` keeps the isolation of guests.",
        find: iommu_translates,
    },
    Check {
        id: "iommu-group",
        topic: Iommu,
        severity: Warning,
        title: "An accelerator shares its IOMMU group with other devices.",
        why: "A group goes to a guest as a whole, because the IOMMU cannot isolate its devices \
              from each other.",
        find: iommu_group,
    },
    Check {
        id: "iommu-group-split",
        topic: Iommu,
        severity: Error,
        title: "An IOMMU group has devices of guests and devices of the host.",
        why: "VFIO refuses the whole group until no driver of the host holds a device of it.",
        find: iommu_group_split,
    },
    Check {
        id: "acs-off",
        topic: Iommu,
        severity: Warning,
        title: "A bridge above a device for guests does not isolate what is below it.",
        why: "Devices below the bridge reach each other without the IOMMU. Switching access \
              control services on costs the direct path between them: see `acs-redirect`.",
        find: acs_off,
    },
    Check {
        id: "acs-redirect",
        topic: Iommu,
        severity: Note,
        title: "A bridge between a GPU and an RDMA card redirects transfers to the root.",
        why: "Transfers between the two then go through the host bridge and the IOMMU instead of \
              straight through the switch. It is the price of isolation: switch it off only if \
              no guest uses a device below the bridge.",
        find: acs_redirect,
    },
    Check {
        id: "acs-override",
        topic: Iommu,
        severity: Warning,
        title: "The kernel pretends that bridges isolate (`pcie_acs_override`).",
        why: "The groups look separate, but a guest can reach devices of other groups.",
        find: acs_override,
    },
    Check {
        id: "vfio-interrupts",
        topic: Iommu,
        severity: Warning,
        title: "VFIO accepts an IOMMU that cannot remap interrupts.",
        why: "A guest with a device can send any interrupt to the host.",
        find: vfio_interrupts,
    },
];

fn iommu_off(facts: &Facts) -> Vec<Seen> {
    let host = &facts.host;
    let for_guests = facts.pci.iter().any(Pci::is_for_guests);
    let matters = for_guests || (!host.is_guest && facts.accelerators().next().is_some());
    when(matters && host.has_pci && !host.has_iommu_groups, || {
        let text = match host.parameter("intel_iommu").or(host.parameter("iommu")) {
            Some("off") => "the kernel's parameters switch the IOMMU off",
            _ => "the kernel has made no IOMMU groups",
        };
        let repair = "switch VT-d or AMD-Vi on in the firmware's settings, and add \
                      `intel_iommu=on iommu=pt` (AMD: `iommu=pt`) to the kernel's parameters";
        let severity = if for_guests { Error } else { Note };
        Seen::new("sys/kernel/iommu_groups", text, repair).with(severity)
    })
}

fn iommu_translates(facts: &Facts) -> Vec<Seen> {
    let translated = facts
        .own_accelerators()
        .filter(|device| device.group_type.as_deref().is_some_and(|kind| kind.starts_with("DMA")));
    let seen = |device: &Pci| {
        let kind = device.group_type.as_deref().unwrap_or_default();
        let text = format!("the group of the {} has the type {kind}", device.name());
        let repair = "add `iommu=pt` to the kernel's parameters (GRUB_CMDLINE_LINUX in \
                      /etc/default/grub; sudo update-grub), and restart the host";
        Seen::new(format!("{}/iommu_group/type", device.path()), text, repair)
    };
    translated.filter(|_| !facts.host.is_guest).map(seen).collect()
}

/// Returns the devices of the same group that are neither bridges nor functions of the same card.
fn strangers<'a>(facts: &'a Facts, device: &'a Pci) -> impl Iterator<Item = &'a Pci> {
    let others = facts.pci.iter().filter(|other| other.address != device.address);
    let others = others.filter(|other| device.group.is_some() && other.group == device.group);
    others.filter(|other| !other.is_bridge() && !other.shares_card(device))
}

fn iommu_group(facts: &Facts) -> Vec<Seen> {
    if facts.host.is_guest {
        return Vec::new();
    }
    let seen = |device: &Pci| {
        let others: Vec<&str> =
            strangers(facts, device).map(|other| other.address.as_str()).collect();
        let group = device.group.as_deref().filter(|_| !others.is_empty())?;
        let text = format!("group {group} of the {} also has {}", device.name(), others.join(", "));
        let repair = "use another slot, or switch access control services on in the firmware's \
                      settings; otherwise pass the whole group to one guest";
        let severity = if device.is_for_guests() { Warning } else { Note };
        let place = format!("sys/kernel/iommu_groups/{group}/devices");
        Some(Seen::new(place, text, repair).with(severity))
    };
    facts.accelerators().filter_map(seen).collect()
}

fn iommu_group_split(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let group = device.group.as_deref()?;
        let same = facts.pci.iter().filter(|other| other.group == device.group);
        let held = same.filter(|other| !other.is_bridge() && !other.is_for_guests());
        // pci-stub and no driver at all are as good as vfio-pci.
        let is_host = |driver: &str| driver != "pci-stub";
        let other = held.into_iter().find(|it| it.driver.as_deref().is_some_and(is_host))?;
        let text = format!(
            "group {group} has {} for guests, and {} with the driver {}",
            device.address,
            other.address,
            other.driver.as_deref().unwrap_or_default()
        );
        let repair = format!("sudo driverctl set-override {} vfio-pci", other.address);
        Some(Seen::new(format!("sys/kernel/iommu_groups/{group}/devices"), text, repair))
    };
    facts.pci.iter().filter(|it| it.is_for_guests()).filter_map(seen).collect()
}

/// Returns the bridges above a device that have access control services.
fn services<'a>(facts: &'a Facts, device: &Pci) -> Vec<(&'a Pci, Acs)> {
    let bridges = device.bridges.iter().filter_map(|address| facts.by_address(address));
    bridges.filter_map(|bridge| Some((bridge, bridge.acs?))).collect()
}

fn acs_off(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let (bridge, _) = services(facts, device).into_iter().find(|(_, acs)| !acs.isolates())?;
        let text = format!(
            "access control services of the bridge {} above the {} are off",
            bridge.address,
            device.name()
        );
        let repair = "switch ACS on in the firmware's settings";
        Some(Seen::new(format!("{}/config", bridge.path()), text, repair))
    };
    facts.pci.iter().filter(|it| it.is_for_guests()).filter_map(seen).collect()
}

fn acs_redirect(facts: &Facts) -> Vec<Seen> {
    let redirects = |acs: Acs| acs.on & Acs::REDIRECTS != 0;
    let cards = facts.network.rdma.iter().filter_map(|it| facts.by_address(it.card.as_deref()?));
    let cards: Vec<&Pci> = cards.collect();
    let seen = |device: &Pci| {
        // Only bridges that are above both matter, and the ports of a switch below these.
        let card = cards.iter().find(|card| card.bridges.first() == device.bridges.first())?;
        let shared = device.bridges.iter().take_while(|it| card.bridges.contains(it)).count();
        let (bridge, _) = services(facts, device).into_iter().find(|(it, acs)| {
            redirects(*acs) && device.bridges.iter().position(|b| *b == it.address) >= Some(shared)
        })?;
        let text = format!(
            "the port {} redirects what the {} sends to the RDMA card {}",
            bridge.address,
            device.name(),
            card.address
        );
        let repair =
            "without guests: sudo setpci -s ADDRESS ECAP_ACS+6.w=0 on the ports of the switch";
        Some(Seen::new(format!("{}/config", bridge.path()), text, repair))
    };
    facts.own_accelerators().filter(|it| !it.bridges.is_empty()).filter_map(seen).collect()
}

fn acs_override(facts: &Facts) -> Vec<Seen> {
    let value = facts.host.parameter("pcie_acs_override");
    when(value.is_some(), || {
        let text =
            format!("the kernel's parameters have pcie_acs_override={}", value.unwrap_or(""));
        Seen::new("proc/cmdline", text, "remove the parameter, unless every guest is trusted")
    })
}

fn vfio_interrupts(facts: &Facts) -> Vec<Seen> {
    when(facts.host.unsafe_interrupts, || {
        let place = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
        let repair = "remove allow_unsafe_interrupts from /etc/modprobe.d, and switch interrupt \
                      remapping on in the firmware's settings";
        Seen::new(place, "allow_unsafe_interrupts is on", repair)
    })
}
