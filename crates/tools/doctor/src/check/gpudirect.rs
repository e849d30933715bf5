//! What a network card needs in order to reach the memory of a GPU.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Maker, Pci, Rdma};
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::GpuDirect;

pub const CHECKS: &[Check] = &[
    Check {
        id: "gpudirect-module",
        topic: GpuDirect,
        severity: Warning,
        title: "RDMA cards cannot reach the memory of NVIDIA's GPUs.",
        why: "Data goes through the memory of the host. HOOMD on four nodes gained about 9 % \
              from the direct path.",
        find: gpudirect_module,
    },
    Check {
        id: "gpudirect-path",
        topic: GpuDirect,
        severity: Note,
        title: "A GPU and the RDMA card are not below the same root port or switch.",
        why: "Transfers between the two cross the host bridge, which many processors forward \
              slowly or not at all.",
        find: gpudirect_path,
    },
    Check {
        id: "gpudirect-kernel",
        topic: GpuDirect,
        severity: Note,
        title: "The kernel is too old to share GPU memory with RDMA cards by dma-buf.",
        why: "Only NVIDIA's own module nvidia_peermem is left for GPUDirect, and GPUs of other \
              makers have none.",
        find: gpudirect_kernel,
    },
];

/// First kernel in which RDMA cards import memory by dma-buf.
const DMA_BUF: (u32, u32) = (5, 12);

fn has_dma_buf(facts: &Facts) -> bool {
    facts.host.kernel.is_some_and(|kernel| kernel >= DMA_BUF)
}

fn gpudirect_module(facts: &Facts) -> Vec<Seen> {
    let nvidia = &facts.nvidia;
    let works = nvidia.has_peer_memory || (nvidia.is_open && has_dma_buf(facts));
    let matters = nvidia.module.is_some() && !facts.network.rdma.is_empty();
    when(matters && facts.has(Maker::Nvidia) && !works, || {
        let text = "nvidia_peermem is not loaded, and NVIDIA's module is not the open one";
        let repair = "sudo modprobe nvidia-peermem, or install the open kernel module";
        Seen::new("sys/module/nvidia_peermem", text, repair)
    })
}

fn gpudirect_path(facts: &Facts) -> Vec<Seen> {
    let cards: Vec<(&Rdma, &Pci)> = facts
        .network
        .rdma
        .iter()
        .filter_map(|card| Some((card, facts.by_address(card.card.as_deref()?)?)))
        .collect();
    let seen = |device: &Pci| {
        let near = |card: &Pci| {
            !device.bridges.is_empty() && device.bridges.first() == card.bridges.first()
        };
        let (first, _) = cards.first()?;
        (!cards.iter().any(|(_, card)| near(card))).then(|| {
            let root = device.bridges.first().map_or("the root complex", String::as_str);
            let text = format!("{} is not below {root}, as the {} is", first.name, device.name());
            let repair = "move one of the cards to a slot of the same switch";
            Seen::new(device.path(), text, repair)
        })
    };
    let devices = facts.own_accelerators().filter(|_| !facts.host.is_guest);
    devices.filter_map(seen).collect()
}

fn gpudirect_kernel(facts: &Facts) -> Vec<Seen> {
    let matters = facts.own_accelerators().next().is_some() && !facts.network.rdma.is_empty();
    let Some((major, minor)) = facts.host.kernel.filter(|_| matters && !has_dma_buf(facts)) else {
        return Vec::new();
    };
    let text = format!("the kernel is {major}.{minor}, and dma-buf for RDMA came with 5.12");
    vec![Seen::new("proc/sys/kernel/osrelease", text, "install a newer kernel")]
}
