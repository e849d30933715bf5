//! Huge pages, shared memory, and limits of memory.

use super::define::{Check, Seen, bytes, when};
use crate::facts::{Facts, Pci};
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::Memory;

pub const CHECKS: &[Check] = &[
    Check {
        id: "huge-pages",
        topic: Memory,
        severity: Note,
        title: "Devices are set aside for guests, but no huge pages are reserved.",
        why: "VFIO pins the guest's whole memory, and the processor and the IOMMU translate each \
              of its pages.",
        find: huge_pages,
    },
    Check {
        id: "huge-pages-node",
        topic: Memory,
        severity: Warning,
        title: "Huge pages are reserved, but none at the NUMA node of a device for guests.",
        why: "The guest's memory then lies at another node than the device.",
        find: huge_pages_node,
    },
    Check {
        id: "transparent-pages",
        topic: Memory,
        severity: Note,
        title: "Transparent huge pages are switched off.",
        why: "Large buffers of programs and of CPU devices take 512 page faults and translations \
              where one would do.",
        find: transparent_pages,
    },
    Check {
        id: "shm-small",
        topic: Memory,
        severity: Warning,
        title: "/dev/shm is small.",
        why: "MPI libraries and many frameworks put messages between processes of one host \
              there, and fail or crash if it is full. Containers get 64 MiB unless they ask for \
              more.",
        find: shm_small,
    },
    Check {
        id: "memory-limit",
        topic: Memory,
        severity: Note,
        title: "A control group limits the memory to less than the host has.",
        why: "The kernel kills a worker that exceeds the limit. CPU devices report the memory of \
              the host, so programs do not see the limit.",
        find: memory_limit,
    },
];

fn huge_pages(facts: &Facts) -> Vec<Seen> {
    let for_guests = facts.pci.iter().any(Pci::is_for_guests);
    let is_known = !facts.memory.numa.is_empty();
    when(for_guests && is_known && facts.memory.huge_bytes() == 0, || {
        let repair = "for a guest of 16 GiB with pages of 2 MiB: echo 8192 | sudo tee \
                      /sys/devices/system/node/nodeN/hugepages/hugepages-2048kB/nr_hugepages";
        Seen::new("sys/devices/system/node", "no node has huge pages", repair)
    })
}

fn huge_pages_node(facts: &Facts) -> Vec<Seen> {
    let memory = &facts.memory;
    let seen = |device: &Pci| {
        let node = memory.numa.iter().find(|node| Some(node.id) == device.numa)?;
        (memory.huge_bytes() > 0 && node.huge_bytes == 0).then(|| {
            let id = node.id;
            let text = format!(
                "NUMA node {id} of the {} has no huge pages, other nodes have {}",
                device.name(),
                bytes(memory.huge_bytes())
            );
            let path = format!("sys/devices/system/node/node{id}/hugepages");
            let repair = format!("echo PAGES | sudo tee /{path}/hugepages-2048kB/nr_hugepages");
            Seen::new(path, text, repair)
        })
    };
    facts.pci.iter().filter(|it| it.is_for_guests()).filter_map(seen).collect()
}

fn transparent_pages(facts: &Facts) -> Vec<Seen> {
    when(facts.memory.transparent_pages.as_deref() == Some("never"), || {
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        Seen::new(path, "the setting is `never`", format!("echo madvise | sudo tee /{path}"))
    })
}

fn shm_small(facts: &Facts) -> Vec<Seen> {
    // Docker's and Podman's default is 64 MiB; a host's default is half of its memory.
    const SMALL_BYTES: u64 = 256 << 20;
    let size = facts.memory.shm_bytes.filter(|size| *size < SMALL_BYTES);
    let seen = |size: &u64| {
        let repair = match facts.host.container {
            Some(_) => "start the container with --shm-size=1g or --ipc=host",
            None => "sudo mount -o remount,size=50% /dev/shm",
        };
        Seen::new("proc/self/mounts", format!("/dev/shm has {}", bytes(*size)), repair)
    };
    size.iter().map(seen).collect()
}

fn memory_limit(facts: &Facts) -> Vec<Seen> {
    let Some((limit, path)) = &facts.memory.limit else { return Vec::new() };
    when(facts.memory.bytes.is_some_and(|all| *limit < all), || {
        let all = bytes(facts.memory.bytes.unwrap_or_default());
        let text = format!("the limit is {}, the host has {all}", bytes(*limit));
        Seen::new(path, text, "ask the batch system or the container's owner for more memory")
    })
}
