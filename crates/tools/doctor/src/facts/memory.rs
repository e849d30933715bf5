//! Memory, huge pages and NUMA nodes.

use super::files::{count, mounts, number_list};
use super::processors::control_groups;
use crate::tree::{Tree, keep};

#[derive(Clone, Debug)]
pub struct Memory {
    /// Bytes of the host's memory.
    pub bytes: Option<u64>,
    /// Whether memory moves to the node that uses it: `kernel.numa_balancing`.
    pub balances: bool,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim: u64,
    /// The chosen word of `transparent_hugepage/enabled`.
    pub transparent_pages: Option<String>,
    pub numa: Vec<NumaNode>,
    /// Bytes that the control group may use at most, and the file that says so.
    pub limit: Option<(u64, String)>,
    /// Bytes of `/dev/shm`, if its mount has a size.
    pub shm_bytes: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct NumaNode {
    pub id: u32,
    pub cpus: Vec<u32>,
    /// Bytes of reserved huge pages of all sizes, and how many of these bytes are free.
    pub huge_bytes: u64,
    pub huge_free_bytes: u64,
}

const NODES: &str = "sys/devices/system/node";

impl Memory {
    pub fn read(tree: &Tree) -> Self {
        let total = tree.read("proc/meminfo", |text| keep::keys(text, &["MemTotal"]));
        let total = total.and_then(|text| kilobytes(keep::value(&text, "MemTotal")?));
        let pages = tree.read("sys/kernel/mm/transparent_hugepage/enabled", keep::line);
        let chosen = |text: String| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
        Self {
            bytes: total,
            balances: count(tree, "proc/sys/kernel/numa_balancing").unwrap_or_default() > 0,
            zone_reclaim: count(tree, "proc/sys/vm/zone_reclaim_mode").unwrap_or_default(),
            transparent_pages: pages.and_then(chosen),
            numa: numa(tree),
            limit: limit(tree),
            shm_bytes: tree
                .read("proc/self/mounts", mounts)
                .and_then(|text| keep::value(&text, "dev-shm-bytes")?.parse().ok()),
        }
    }

    /// Returns the bytes of huge pages that are reserved on all nodes.
    pub fn huge_bytes(&self) -> u64 {
        self.numa.iter().map(|node| node.huge_bytes).fold(0, u64::saturating_add)
    }
}

fn numa(tree: &Tree) -> Vec<NumaNode> {
    let node = |name: String| {
        let id = name.strip_prefix("node")?.parse().ok()?;
        let path = tree.target(&format!("{NODES}/{name}"))?;
        let cpus = tree.read(&format!("{path}/cpulist"), keep::line).unwrap_or_default();
        let (mut huge_bytes, mut huge_free_bytes) = (0_u64, 0_u64);
        for size in tree.list(&format!("{path}/hugepages")) {
            let bytes = size.strip_prefix("hugepages-").and_then(kilobytes).unwrap_or_default();
            let pages = |file: &str| {
                let pages = count(tree, &format!("{path}/hugepages/{size}/{file}"));
                pages.unwrap_or_default().saturating_mul(bytes)
            };
            huge_bytes = huge_bytes.saturating_add(pages("nr_hugepages"));
            huge_free_bytes = huge_free_bytes.saturating_add(pages("free_hugepages"));
        }
        Some(NumaNode { id, cpus: number_list(&cpus), huge_bytes, huge_free_bytes })
    };
    tree.list(NODES).into_iter().filter_map(node).collect()
}

/// Reads `2048kB` and `4096 kB` as bytes.
fn kilobytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest memory limit of the control groups of this process.
fn limit(tree: &Tree) -> Option<(u64, String)> {
    let limits = control_groups(tree).into_iter().filter_map(|group| {
        let path = format!("{group}/memory.max");
        Some((count(tree, &path)?, path))
    });
    limits.min()
}
