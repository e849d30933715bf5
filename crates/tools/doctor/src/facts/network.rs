//! Network interfaces, TCP, and RDMA cards.

use super::files::count;
use crate::tree::{Node, Tree, keep};

#[derive(Clone, Debug)]
pub struct Network {
    /// Interfaces with a device of their own. Bridges and the like are left out.
    pub interfaces: Vec<Interface>,
    pub rdma: Vec<Rdma>,
    /// `net.ipv4.tcp_congestion_control`.
    pub congestion: Option<String>,
    pub queueing: Option<String>,
    /// Largest receive and send buffers that TCP chooses by itself, in bytes.
    pub receive_bytes_max: Option<u64>,
    pub send_bytes_max: Option<u64>,
    pub scales_windows: Option<bool>,
    pub shrinks_when_idle: bool,
    /// Whether the guest's side of vsock is there.
    pub has_vsock_transport: bool,
}

#[derive(Clone, Debug)]
pub struct Interface {
    pub name: String,
    /// Whether the interface has a link.
    pub is_up: bool,
    pub mtu: Option<u64>,
    /// Megabits per second, if the driver says so.
    pub speed: Option<u64>,
    pub duplex: Option<String>,
    pub driver: Option<String>,
    /// PCI address of the card.
    pub card: Option<String>,
}

impl Interface {
    pub fn path(&self, file: &str) -> String {
        format!("sys/class/net/{}/{file}", self.name)
    }
}

/// An RDMA card, such as one for InfiniBand.
#[derive(Clone, Debug)]
pub struct Rdma {
    pub name: String,
    /// PCI address of the card.
    pub card: Option<String>,
    /// Numbers and states of the ports, such as `ACTIVE`.
    pub ports: Vec<(String, String)>,
    /// The node through which programs use the card.
    pub verbs: Option<(String, Node)>,
}

impl Network {
    pub fn read(tree: &Tree) -> Self {
        let ipv4 = |name: &str| format!("proc/sys/net/ipv4/{name}");
        let line = |path: &str| tree.read(path, keep::line);
        let last = |name: &str| line(&ipv4(name))?.split_whitespace().nth(2)?.parse().ok();
        Self {
            interfaces: interfaces(tree),
            rdma: rdma(tree),
            congestion: line(&ipv4("tcp_congestion_control")),
            queueing: line("proc/sys/net/core/default_qdisc"),
            receive_bytes_max: last("tcp_rmem"),
            send_bytes_max: last("tcp_wmem"),
            scales_windows: count(tree, &ipv4("tcp_window_scaling")).map(|value| value > 0),
            shrinks_when_idle: count(tree, &ipv4("tcp_slow_start_after_idle")) == Some(1),
            has_vsock_transport: [
                "vmw_vsock_virtio_transport",
                "vmw_vsock_vmci_transport",
                "hv_sock",
            ]
            .iter()
            .any(|module| tree.exists(&format!("sys/module/{module}"))),
        }
    }

    /// Returns the fastest interface that has a link and says its speed.
    pub fn fastest(&self) -> Option<(&Interface, u64)> {
        let fast = self.interfaces.iter().filter(|it| it.is_up);
        fast.filter_map(|it| Some((it, it.speed?))).max_by_key(|(_, speed)| *speed)
    }
}

fn interfaces(tree: &Tree) -> Vec<Interface> {
    let interface = |name: String| {
        let at = |file: &str| format!("sys/class/net/{name}/{file}");
        let line = |file: &str| tree.read(&at(file), keep::line);
        if !tree.exists(&at("device")) {
            return None;
        }
        // The device of virtio is not the PCI device itself, but lies below it.
        let path = tree.target(&at("device"))?;
        let card = path.split('/').rev().find(|part| part.matches(':').count() == 2);
        Some(Interface {
            is_up: line("operstate").as_deref() == Some("up"),
            mtu: count(tree, &at("mtu")),
            speed: count(tree, &at("speed")).filter(|speed| *speed > 0),
            duplex: line("duplex"),
            driver: tree.target_name(&at("device/driver")),
            card: card.map(str::to_owned),
            name,
        })
    };
    tree.list("sys/class/net").into_iter().filter_map(interface).collect()
}

fn rdma(tree: &Tree) -> Vec<Rdma> {
    let verbs = tree.list("sys/class/infiniband_verbs");
    let card = |name: String| {
        let at = |file: &str| format!("sys/class/infiniband/{name}/{file}");
        let ports = tree.list(&at("ports")).into_iter().filter_map(|port| {
            let state = tree.read(&at(&format!("ports/{port}/state")), keep::line)?;
            // The file reads `4: ACTIVE`.
            Some((port, state.rsplit(' ').next()?.to_owned()))
        });
        let ports = ports.collect();
        let is_own = |verb: &&String| {
            let path = format!("sys/class/infiniband_verbs/{verb}/ibdev");
            tree.read(&path, keep::line).as_deref() == Some(name.as_str())
        };
        let verbs = verbs.iter().find(is_own).and_then(|verb| {
            let path = format!("dev/infiniband/{verb}");
            Some((path.clone(), tree.node(&path)?))
        });
        Rdma { card: tree.target_name(&at("device")), ports, verbs, name }
    };
    let names = tree.list("sys/class/infiniband").into_iter();
    names.filter(|name| tree.exists(&format!("sys/class/infiniband/{name}"))).map(card).collect()
}
