//! Network interfaces, TCP, and RDMA cards.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Interface, Rdma};
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::Network;

pub const CHECKS: &[Check] = &[
    Check {
        id: "network-slow",
        topic: Network,
        severity: Note,
        title: "The fastest network interface carries 1 Gb/s or less.",
        why: "1 Gb/s is 125 MB/s. Programs that move much data between hosts are bound by it.",
        find: network_slow,
    },
    Check {
        id: "duplex-half",
        topic: Network,
        severity: Warning,
        title: "A network interface sends and receives in turn (half duplex).",
        why: "Collisions cost most of the bandwidth. The two ends of the cable usually disagree \
              about the mode.",
        find: duplex_half,
    },
    Check {
        id: "mtu-small",
        topic: Network,
        severity: Note,
        title: "The largest packet of an interface (MTU) is below 1,500 bytes.",
        why: "Tunnels need this. If another host of the pool sends larger packets and a firewall \
              drops the messages about it, connections hang.",
        find: mtu_small,
    },
    Check {
        id: "mtu-fast",
        topic: Network,
        severity: Note,
        title: "An interface of 10 Gb/s or more uses packets of 1,500 bytes.",
        why: "The processors of both hosts work for each packet, and packets of 9,000 bytes need \
              a sixth of it.",
        find: mtu_fast,
    },
    Check {
        id: "tcp-buffers",
        topic: Network,
        severity: Warning,
        title: "The buffers of TCP hold less than the network carries in 1 ms.",
        why: "A connection can have only as many bytes on the way as the smaller buffer holds, \
              so a round trip of 1 ms already limits its bandwidth.",
        find: tcp_buffers,
    },
    Check {
        id: "tcp-windows",
        topic: Network,
        severity: Warning,
        title: "TCP does not scale its windows.",
        why: "A connection has at most 64 KiB on the way: 64 MB/s at a round trip of 1 ms.",
        find: tcp_windows,
    },
    Check {
        id: "tcp-idle",
        topic: Network,
        severity: Note,
        title: "TCP starts with a small window again after a pause.",
        why: "The first large transfer after each pause waits for several round trips. Windows \
              that open slowly were one of the main losses of rCUDA.",
        find: tcp_idle,
    },
    Check {
        id: "tcp-congestion",
        topic: Network,
        severity: Note,
        title: "TCP paces its packets by timers (BBR).",
        why: "Within one host, with busy cores, BBR moved 16 MiB at 2.0 GB/s and Reno at 4.2 \
              GB/s. Penstock chooses Reno there; between hosts the setting of the system counts.",
        find: tcp_congestion,
    },
    Check {
        id: "rdma-port",
        topic: Network,
        severity: Warning,
        title: "No port of an RDMA card is active.",
        why: "MPI and UCX fall back to TCP without a message.",
        find: rdma_port,
    },
    Check {
        id: "rdma-permission",
        topic: Network,
        severity: Warning,
        title: "The user may not use an RDMA card.",
        why: "MPI and UCX fall back to TCP without a message.",
        find: rdma_permission,
    },
];

fn up(facts: &Facts) -> impl Iterator<Item = &Interface> {
    facts.network.interfaces.iter().filter(|it| it.is_up)
}

fn network_slow(facts: &Facts) -> Vec<Seen> {
    let slow = facts.network.fastest().filter(|(_, speed)| *speed <= 1_000);
    let seen = |(interface, speed): &(&Interface, u64)| {
        let text = format!("{} has {speed} Mb/s", interface.name);
        let repair = "use a faster network for the pool, or keep the data on the nodes";
        // Every network card of the last twenty years can do more than 100 Mb/s.
        let severity = if *speed <= 100 { Warning } else { Note };
        Seen::new(interface.path("speed"), text, repair).with(severity)
    };
    slow.iter().filter(|_| facts.network.rdma.is_empty()).map(seen).collect()
}

fn duplex_half(facts: &Facts) -> Vec<Seen> {
    let half = up(facts).filter(|it| it.duplex.as_deref() == Some("half"));
    let seen = |it: &Interface| {
        let repair = format!("sudo ethtool -s {} autoneg on, and the same at the switch", it.name);
        Seen::new(it.path("duplex"), format!("{} is half duplex", it.name), repair)
    };
    half.map(seen).collect()
}

fn mtu_small(facts: &Facts) -> Vec<Seen> {
    let seen = |it: &Interface| {
        let mtu = it.mtu.filter(|mtu| *mtu < 1_500)?;
        let text = format!("{} has an MTU of {mtu} bytes", it.name);
        let repair = "nothing, if the network is a tunnel and all hosts of the pool have the same \
                      value; otherwise: sudo ip link set dev";
        Some(Seen::new(it.path("mtu"), text, format!("{repair} {} mtu 1500", it.name)))
    };
    up(facts).filter_map(seen).collect()
}

fn mtu_fast(facts: &Facts) -> Vec<Seen> {
    let fast = up(facts).filter(|it| it.speed >= Some(10_000) && it.mtu == Some(1_500));
    let seen = |it: &Interface| {
        let text = format!("{} has {} Mb/s", it.name, it.speed.unwrap_or_default());
        let repair = format!(
            "if the switches and all hosts allow it: sudo ip link set dev {} mtu 9000",
            it.name
        );
        Seen::new(it.path("mtu"), format!("{text} and an MTU of 1500 bytes"), repair)
    };
    fast.map(seen).collect()
}

fn tcp_buffers(facts: &Facts) -> Vec<Seen> {
    let network = &facts.network;
    let Some((interface, speed)) = network.fastest() else { return Vec::new() };
    // Megabits per second are 125 bytes per millisecond.
    let needed = speed.saturating_mul(125);
    let buffers = [("tcp_rmem", network.receive_bytes_max), ("tcp_wmem", network.send_bytes_max)];
    let seen = |(name, bytes): &(&str, Option<u64>)| {
        let bytes = bytes.filter(|bytes| *bytes < needed)?;
        let text = format!(
            "{name} allows {bytes} bytes, and {} carries {needed} bytes in 1 ms",
            interface.name
        );
        let first = if *name == "tcp_rmem" { "4096 131072" } else { "4096 16384" };
        let repair =
            format!("sudo sysctl net.ipv4.{name}='{first} {}'", needed.next_power_of_two());
        Some(Seen::new(format!("proc/sys/net/ipv4/{name}"), text, repair))
    };
    buffers.iter().filter_map(seen).collect()
}

fn tcp_windows(facts: &Facts) -> Vec<Seen> {
    when(facts.network.scales_windows == Some(false), || {
        let path = "proc/sys/net/ipv4/tcp_window_scaling";
        Seen::new(path, "window scaling is off", "sudo sysctl net.ipv4.tcp_window_scaling=1")
    })
}

fn tcp_idle(facts: &Facts) -> Vec<Seen> {
    // BBR has windows of its own and ignores the setting.
    let is_bbr = facts.network.congestion.as_deref() == Some("bbr");
    when(facts.network.shrinks_when_idle && !is_bbr, || {
        let path = "proc/sys/net/ipv4/tcp_slow_start_after_idle";
        let repair = "sudo sysctl net.ipv4.tcp_slow_start_after_idle=0";
        Seen::new(path, "the setting is 1", repair)
    })
}

fn tcp_congestion(facts: &Facts) -> Vec<Seen> {
    when(facts.network.congestion.as_deref() == Some("bbr"), || {
        let path = "proc/sys/net/ipv4/tcp_congestion_control";
        let repair =
            "in the network of a cluster: sudo sysctl net.ipv4.tcp_congestion_control=cubic";
        Seen::new(path, "the congestion control is bbr", repair)
    })
}

fn rdma_port(facts: &Facts) -> Vec<Seen> {
    let is_down = |card: &&Rdma| card.ports.iter().all(|(_, state)| state != "ACTIVE");
    let seen = |card: &Rdma| {
        let states: Vec<String> =
            card.ports.iter().map(|(port, state)| format!("port {port} is {state}")).collect();
        let text = format!("{}: {}", card.name, states.join(", "));
        let repair = "look at the cable and the switch; an InfiniBand network needs a subnet \
                      manager (opensm) on one host";
        Seen::new(format!("sys/class/infiniband/{}/ports", card.name), text, repair)
    };
    facts.network.rdma.iter().filter(is_down).map(seen).collect()
}

fn rdma_permission(facts: &Facts) -> Vec<Seen> {
    let seen = |card: &Rdma| {
        let (path, node) = card.verbs.as_ref()?;
        (!facts.user.may_use(node)).then(|| {
            let text = format!("/{path} of {} has mode {:04o}", card.name, node.mode);
            Seen::new(path, text, facts.user.admission(path, node))
        })
    };
    facts.network.rdma.iter().filter_map(seen).collect()
}
