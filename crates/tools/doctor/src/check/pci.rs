//! Links, regions and virtual functions of PCI devices.

use super::define::{Check, Seen, bytes};
use crate::facts::{Facts, Pci};
use crate::finding::Severity::{Error, Note, Warning};
use crate::finding::Topic::Pci as PciTopic;

pub const CHECKS: &[Check] = &[
    Check {
        id: "link-width",
        topic: PciTopic,
        severity: Warning,
        title: "The link of an accelerator or network card has fewer lanes than both ends support.",
        why: "The bandwidth between host and device is proportional to the number of lanes.",
        find: link_width,
    },
    Check {
        id: "link-speed",
        topic: PciTopic,
        severity: Warning,
        title: "The link of an accelerator or network card is slower than both ends support.",
        why: "The bandwidth between host and device is proportional to the speed. GPUs lower the \
              speed while they are idle, so look again while the device works.",
        find: link_speed,
    },
    Check {
        id: "link-slot",
        topic: PciTopic,
        severity: Note,
        title: "The port above an accelerator or network card supports less than the card.",
        why: "The card could move more data in another slot.",
        find: link_slot,
    },
    Check {
        id: "bar-unset",
        topic: PciTopic,
        severity: Error,
        title: "The firmware gave a region of an accelerator no address.",
        why: "The driver cannot work without the region.",
        find: bar_unset,
    },
    Check {
        id: "bar-32-bit",
        topic: PciTopic,
        severity: Warning,
        title: "The largest region of an accelerator is a 32-bit one.",
        why: "It cannot grow to the size of the device's memory, as full GPUDirect needs.",
        find: bar_32_bit,
    },
    Check {
        id: "bar-small",
        topic: PciTopic,
        severity: Warning,
        title: "The largest region of an accelerator is smaller than the device's memory.",
        why: "Other devices and the host reach only a part of the memory directly, so GPUDirect \
              works through a small window.",
        find: bar_small,
    },
    Check {
        id: "sriov-off",
        topic: PciTopic,
        severity: Note,
        title: "A card can have virtual functions, and has none.",
        why: "Each guest could have a function of the card for itself, without the cost of a \
              virtual network.",
        find: sriov_off,
    },
];

/// Returns the accelerators and network cards with a PCI Express link.
fn cards(facts: &Facts) -> impl Iterator<Item = &Pci> {
    // In a guest the link is that of a virtual slot and says nothing.
    let is_real = !facts.host.is_guest;
    let cards = facts.pci.iter().filter(|it| it.is_accelerator() || it.is_network());
    cards.filter(move |it| is_real && !it.is_function)
}

fn port<'a>(facts: &'a Facts, card: &Pci) -> Option<&'a Pci> {
    facts.by_address(card.bridges.last()?)
}

/// Returns the most that both ends of a link support.
fn both<T: PartialOrd>(card: Option<T>, port: Option<T>) -> Option<T> {
    match (card, port) {
        (Some(card), Some(port)) => Some(if port < card { port } else { card }),
        (card, _) => card,
    }
}

fn link_width(facts: &Facts) -> Vec<Seen> {
    let seen = |card: &Pci| {
        let most = both(card.width_max, port(facts, card).and_then(|port| port.width_max))?;
        let now = card.width.filter(|now| *now < most)?;
        let text = format!("the {} uses {now} lanes of {most}", card.name());
        let repair = "seat the card again, and look whether the slot shares its lanes with another";
        Some(Seen::new(format!("{}/current_link_width", card.path()), text, repair))
    };
    cards(facts).filter_map(seen).collect()
}

fn link_speed(facts: &Facts) -> Vec<Seen> {
    let seen = |card: &Pci| {
        let most = both(card.speed_max, port(facts, card).and_then(|port| port.speed_max))?;
        let now = card.speed.filter(|now| *now < most)?;
        let text = format!("the {} runs at {now} GT/s of {most}", card.name());
        let repair = "look again while the device works; if it stays: the slot's speed in the \
                      firmware's settings, a riser or a cable";
        // GPUs save power in this way, network cards do not.
        let severity = if card.is_accelerator() { Note } else { Warning };
        Some(Seen::new(format!("{}/current_link_speed", card.path()), text, repair).with(severity))
    };
    cards(facts).filter_map(seen).collect()
}

fn link_slot(facts: &Facts) -> Vec<Seen> {
    let seen = |card: &Pci| {
        let port = port(facts, card)?;
        let narrow = port.width_max.zip(card.width_max).is_some_and(|(port, card)| port < card);
        let slow = port.speed_max.zip(card.speed_max).is_some_and(|(port, card)| port < card);
        let most = |it: &Pci| {
            let speed = it.speed_max.unwrap_or_default();
            format!("{} lanes at {speed} GT/s", it.width_max.unwrap_or_default())
        };
        (narrow || slow).then(|| {
            let text =
                format!("the {} supports {}, its port {}", card.name(), most(card), most(port));
            Seen::new(port.path(), text, "move the card to a wider or faster slot")
        })
    };
    cards(facts).filter_map(seen).collect()
}

fn bar_unset(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let bar = device.bars.iter().find(|bar| bar.is_unset)?;
        let text = format!(
            "region {} of the {}, of {}, has no address",
            bar.index,
            device.name(),
            bytes(bar.bytes)
        );
        Some(Seen::new(format!("{}/resource", device.path()), text, ABOVE_4G))
    };
    facts.accelerators().filter_map(seen).collect()
}

/// Repair of regions that are too small or have no address.
const ABOVE_4G: &str =
    "switch on `Above 4G decoding` and `Resizable BAR` in the firmware's settings";

fn bar_32_bit(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let bar = device.largest_bar().filter(|bar| !bar.is_64_bit)?;
        let text = format!("the largest region of the {} is {}", device.name(), bytes(bar.bytes));
        Some(Seen::new(format!("{}/resource", device.path()), text, ABOVE_4G))
    };
    facts.accelerators().filter(|it| it.class >> 16 == 0x03).filter_map(seen).collect()
}

fn bar_small(facts: &Facts) -> Vec<Seen> {
    // A device without resizable regions shows this much, whatever memory it has.
    const USUAL_BYTES: u64 = 256 << 20;
    let seen = |device: &Pci| {
        let bar = device.largest_bar().filter(|bar| bar.is_64_bit)?;
        let is_small = match device.memory {
            Some(memory) => bar.bytes < memory,
            None => bar.bytes <= USUAL_BYTES && !device.bridges.is_empty(),
        };
        is_small.then(|| {
            let memory = device.memory.map_or_else(
                || "as devices without resizable regions have it".to_owned(),
                |memory| format!("and its memory has {}", bytes(memory)),
            );
            let name = device.name();
            let text =
                format!("the largest region of the {name} has {}, {memory}", bytes(bar.bytes));
            Seen::new(format!("{}/resource", device.path()), text, ABOVE_4G)
        })
    };
    facts.accelerators().filter(|it| it.class >> 16 == 0x03).filter_map(seen).collect()
}

fn sriov_off(facts: &Facts) -> Vec<Seen> {
    let able = facts.pci.iter().filter(|it| it.is_accelerator() || it.is_network());
    let able = able.filter(|it| it.functions_max > 0 && it.functions == 0);
    let seen = |device: &Pci| {
        let path = format!("{}/sriov_numvfs", device.path());
        let text =
            format!("the {} could have {} virtual functions", device.name(), device.functions_max);
        let repair =
            format!("if guests need them: echo {} | sudo tee /{path}", device.functions_max.min(4));
        Seen::new(path, text, repair)
    };
    able.filter(|_| facts.hosts_guests()).map(seen).collect()
}
