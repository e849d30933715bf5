//! What guests and containers need, on both sides.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Interface, Maker, Pci};
use crate::finding::Severity::{self, Error, Note, Warning};
use crate::finding::Topic::Virtualisation;
use crate::tree::Node;

pub const CHECKS: &[Check] = &[
    Check {
        id: "virtualisation-off",
        topic: Virtualisation,
        severity: Note,
        title: "The processor cannot run virtual machines.",
        why: "QEMU emulates the guest's processor instead, which is many times slower.",
        find: virtualisation_off,
    },
    Check {
        id: "kvm-missing",
        topic: Virtualisation,
        severity: Note,
        title: "The processor can run virtual machines, but /dev/kvm is missing.",
        why: "QEMU emulates the guest's processor instead, which is many times slower.",
        find: kvm_missing,
    },
    Check {
        id: "kvm-permission",
        topic: Virtualisation,
        severity: Note,
        title: "The user may not use /dev/kvm.",
        why: "QEMU emulates the processor of the user's guests instead, which is many times \
              slower.",
        find: kvm_permission,
    },
    Check {
        id: "vfio-permission",
        topic: Virtualisation,
        severity: Warning,
        title: "A device is set aside for guests, but /dev/vfio/vfio cannot be used.",
        why: "QEMU opens passed-through devices through this node.",
        find: vfio_permission,
    },
    Check {
        id: "vhost-net",
        topic: Virtualisation,
        severity: Note,
        title: "/dev/vhost-net is missing.",
        why: "Without it QEMU itself carries each packet of a guest. In an emulated guest a tap \
              moved 157 MB/s to the host, and the user-mode network, which needs no privileges, \
              42 MB/s.",
        find: vhost_net,
    },
    Check {
        id: "vhost-vsock",
        topic: Virtualisation,
        severity: Note,
        title: "/dev/vhost-vsock is missing or cannot be used.",
        why: "A guest cannot reach the pool over the kernel's vsock. `vhost-device-vsock` needs \
              no module; in an emulated guest it moved 122 MB/s to the host.",
        find: vhost_vsock,
    },
    Check {
        id: "tun-missing",
        topic: Virtualisation,
        severity: Note,
        title: "/dev/net/tun is missing.",
        why: "Guests get only the user-mode network. In an emulated guest it moved 42 MB/s to \
              the host, and a tap 157 MB/s.",
        find: tun_missing,
    },
    Check {
        id: "vsock-guest",
        topic: Virtualisation,
        severity: Note,
        title: "This guest has no vsock device.",
        why: "The guest reaches the pool of its host over TCP only, which needs an IP address on \
              both sides.",
        find: vsock_guest,
    },
    Check {
        id: "nic-emulated",
        topic: Virtualisation,
        severity: Warning,
        title: "The guest's network card imitates a real card.",
        why: "The hypervisor interprets each access to the registers of such a card. virtio-net \
              hands over many packets at a time.",
        find: nic_emulated,
    },
    Check {
        id: "container-devices",
        topic: Virtualisation,
        severity: Error,
        title: "The host of this container has an accelerator, but the container has no node of \
                it.",
        why: "Programs in the container see no device.",
        find: container_devices,
    },
];

fn virtualisation_off(facts: &Facts) -> Vec<Seen> {
    let host = &facts.host;
    let is_known = host.architecture == "x86_64";
    when(is_known && !facts.processors.virtualises && host.kvm.is_none(), || {
        let (text, repair) = if host.is_guest {
            let text =
                format!("this is {}, and its processor has neither vmx nor svm", host.machine());
            (text, "switch nested virtualisation on in the hypervisor, if guests are wanted here")
        } else {
            let text = "the processor has neither vmx nor svm".to_owned();
            (text, "switch VT-x or SVM on in the firmware's settings")
        };
        Seen::new("proc/cpuinfo", text, repair)
    })
}

fn kvm_missing(facts: &Facts) -> Vec<Seen> {
    let is_missing = facts.processors.virtualises && facts.host.kvm.is_none();
    when(is_missing && facts.host.container.is_none(), || {
        let repair = "sudo modprobe kvm_intel || sudo modprobe kvm_amd";
        Seen::new("dev/kvm", "/dev/kvm is not there", repair).with(if_wanted(facts))
    })
}

/// Returns what is seen if the user may not use a node that exists.
fn closed(facts: &Facts, path: &str, node: Option<Node>) -> Vec<Seen> {
    let node = node.filter(|node| !facts.user.may_use(node));
    let seen = |node: &Node| {
        let Node { mode, user, group, .. } = node;
        let text = format!("/{path} has mode {mode:04o}, user {user} and group {group}");
        Seen::new(path, text, facts.user.admission(path, node))
    };
    node.iter().map(seen).collect()
}

fn kvm_permission(facts: &Facts) -> Vec<Seen> {
    let seen = closed(facts, "dev/kvm", facts.host.kvm);
    seen.into_iter().map(|seen| seen.with(if_wanted(facts))).collect()
}

/// Returns the severity of what only guests miss. Most hosts have none.
fn if_wanted(facts: &Facts) -> Severity {
    let is_wanted = !facts.domains.is_empty() || facts.pci.iter().any(Pci::is_for_guests);
    if is_wanted { Warning } else { Note }
}

fn vfio_permission(facts: &Facts) -> Vec<Seen> {
    if !facts.pci.iter().any(Pci::is_for_guests) {
        return Vec::new();
    }
    match facts.host.vfio {
        Some(_) => closed(facts, "dev/vfio/vfio", facts.host.vfio),
        None => {
            let text = "/dev/vfio/vfio is not there";
            vec![Seen::new("dev/vfio/vfio", text, "sudo modprobe vfio-pci")]
        }
    }
}

/// Returns whether guests can run here, so that what they need matters.
fn runs_guests(facts: &Facts) -> bool {
    facts.host.kvm.is_some() && facts.host.container.is_none()
}

fn vhost_net(facts: &Facts) -> Vec<Seen> {
    when(runs_guests(facts) && facts.host.vhost_net.is_none(), || {
        Seen::new("dev/vhost-net", "/dev/vhost-net is not there", "sudo modprobe vhost_net")
    })
}

fn vhost_vsock(facts: &Facts) -> Vec<Seen> {
    let node = facts.host.vhost_vsock;
    if !runs_guests(facts) {
        return Vec::new();
    }
    if node.is_some() {
        return closed(facts, "dev/vhost-vsock", node);
    }
    let repair = "sudo modprobe vhost_vsock, or run vhost-device-vsock for the guest";
    vec![Seen::new("dev/vhost-vsock", "/dev/vhost-vsock is not there", repair)]
}

fn tun_missing(facts: &Facts) -> Vec<Seen> {
    when(runs_guests(facts) && facts.host.tun.is_none(), || {
        Seen::new("dev/net/tun", "/dev/net/tun is not there", "sudo modprobe tun")
    })
}

fn vsock_guest(facts: &Facts) -> Vec<Seen> {
    let host = &facts.host;
    let lacks = host.vsock.is_none() || !facts.network.has_vsock_transport;
    when(host.is_guest && host.container.is_none() && lacks, || {
        let text = format!("this is {} without a vsock device", host.machine());
        let repair = "add <vsock model='virtio'><cid auto='yes'/></vsock> to the guest's domain";
        Seen::new("dev/vsock", text, repair)
    })
}

fn nic_emulated(facts: &Facts) -> Vec<Seen> {
    const IMITATIONS: [&str; 6] = ["e1000", "e1000e", "8139cp", "8139too", "pcnet32", "ne2k-pci"];
    let is_imitation =
        |it: &&Interface| it.driver.as_deref().is_some_and(|driver| IMITATIONS.contains(&driver));
    let seen = |interface: &Interface| {
        let driver = interface.driver.as_deref().unwrap_or_default();
        let text = format!("{} has the driver {driver}", interface.name);
        let repair = "use <model type='virtio'/> for the interface in the guest's domain";
        Seen::new(interface.path("device/driver"), text, repair)
    };
    let interfaces = facts.network.interfaces.iter().filter(|_| facts.host.is_guest);
    interfaces.filter(is_imitation).map(seen).collect()
}

fn container_devices(facts: &Facts) -> Vec<Seen> {
    let Some(kind) = facts.host.container else { return Vec::new() };
    let seen = |(maker, repair): &(Maker, &str)| {
        let driven = facts.own_accelerators().filter(|it| it.driver.is_some());
        let device = driven.into_iter().find(|it| it.maker() == *maker)?;
        let has_node = facts.devices.iter().any(|it| it.maker == *maker);
        (!has_node).then(|| {
            let text = format!("this {kind} container has no node of the {}", device.name());
            Seen::new("dev", text, *repair)
        })
    };
    let kinds = [
        (Maker::Nvidia, "--device nvidia.com/gpu=all (podman, Docker), or --nv (Apptainer)"),
        (Maker::Amd, "--device /dev/kfd --device /dev/dri (podman, Docker), or --rocm (Apptainer)"),
        (Maker::Intel, "--device /dev/dri (podman, Docker)"),
    ];
    kinds.iter().filter_map(seen).collect()
}
