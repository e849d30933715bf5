//! Where devices, processors and memory are.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Pci};
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::Numa;

pub const CHECKS: &[Check] = &[
    Check {
        id: "numa-unknown",
        topic: Numa,
        severity: Warning,
        title: "The firmware does not say at which NUMA node an accelerator is.",
        why: "Neither the kernel nor programs can place threads and memory near the device.",
        find: numa_unknown,
    },
    Check {
        id: "numa-apart",
        topic: Numa,
        severity: Warning,
        title: "No fast network card is at the NUMA node of an accelerator.",
        why: "What the device sends to other nodes of the pool crosses the link between \
              processors. The guests that reached 98.5 % of native speed in LAMMPS had both at \
              one node.",
        find: numa_apart,
    },
    Check {
        id: "numa-cpus",
        topic: Numa,
        severity: Warning,
        title: "The user's processes may not run at the NUMA node of an accelerator.",
        why: "Each transfer between host and device crosses the link between processors.",
        find: numa_cpus,
    },
    Check {
        id: "numa-balancing",
        topic: Numa,
        severity: Note,
        title: "The kernel moves memory between NUMA nodes by itself.",
        why: "It unmaps pages in order to see who uses them. Memory that was placed near a \
              device on purpose gains nothing, and pays with page faults.",
        find: numa_balancing,
    },
    Check {
        id: "zone-reclaim",
        topic: Numa,
        severity: Warning,
        title: "The kernel frees memory of a NUMA node before it uses that of another node.",
        why: "Allocations wait for pages to be written out although the host has free memory.",
        find: zone_reclaim,
    },
];

fn has_many(facts: &Facts) -> bool {
    facts.memory.numa.len() > 1
}

fn numa_unknown(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let path = format!("{}/numa_node", device.path());
        let text = format!("the NUMA node of the {} is unknown", device.name());
        let repair = "update the firmware; until then, if the node is known from the board's \
                      manual: echo NODE | sudo tee";
        Seen::new(&path, text, format!("{repair} /{path}"))
    };
    let unknown = facts.accelerators().filter(|it| it.numa.is_none() && has_many(facts));
    unknown.map(seen).collect()
}

fn numa_apart(facts: &Facts) -> Vec<Seen> {
    // 10 Gb/s and more: slower cards are slower than any link between processors.
    const FAST_MEGABITS: u64 = 10_000;
    let rdma = facts.network.rdma.iter().filter_map(|it| it.card.as_deref());
    let fast = facts.network.interfaces.iter().filter(|it| it.speed >= Some(FAST_MEGABITS));
    let addresses = rdma.chain(fast.filter_map(|it| it.card.as_deref()));
    let cards: Vec<&Pci> = addresses.filter_map(|it| facts.by_address(it)).collect();
    let nodes: Vec<u32> = cards.iter().filter_map(|card| card.numa).collect();
    let seen = |device: &Pci| {
        let node = device.numa.filter(|node| !nodes.is_empty() && !nodes.contains(node))?;
        let others: Vec<String> = cards
            .iter()
            .filter_map(|card| Some(format!("{} at node {}", card.address, card.numa?)))
            .collect();
        let text =
            format!("the {} is at NUMA node {node}, {}", device.name(), others.join(" and "));
        let repair = "move one of the cards to a slot of the same processor";
        Some(Seen::new(format!("{}/numa_node", device.path()), text, repair))
    };
    facts.accelerators().filter(|_| has_many(facts)).filter_map(seen).collect()
}

fn numa_cpus(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        let node = facts.memory.numa.iter().find(|node| Some(node.id) == device.numa)?;
        let allowed = &facts.user.cpus;
        let is_away = !allowed.is_empty()
            && !node.cpus.is_empty()
            && node.cpus.iter().all(|cpu| !allowed.contains(cpu));
        is_away.then(|| {
            let id = node.id;
            let text =
                format!("no CPU of NUMA node {id}, where the {} is, is allowed", device.name());
            let repair = "ask the batch system for cores near the device (Slurm: \
                          --gpu-bind=closest), or widen the CPU set";
            Seen::new("proc/self/status", text, repair)
        })
    };
    facts.own_accelerators().filter(|_| has_many(facts)).filter_map(seen).collect()
}

fn numa_balancing(facts: &Facts) -> Vec<Seen> {
    let matters = has_many(facts) && facts.accelerators().next().is_some();
    when(matters && facts.memory.balances, || {
        let repair = "sudo sysctl kernel.numa_balancing=0";
        Seen::new("proc/sys/kernel/numa_balancing", "automatic NUMA balancing is on", repair)
    })
}

fn zone_reclaim(facts: &Facts) -> Vec<Seen> {
    when(has_many(facts) && facts.memory.zone_reclaim > 0, || {
        let text = format!("vm.zone_reclaim_mode is {}", facts.memory.zone_reclaim);
        let repair = "sudo sysctl vm.zone_reclaim_mode=0";
        Seen::new("proc/sys/vm/zone_reclaim_mode", text, repair)
    })
}
