//! Selects devices of the pool by queries.

use std::sync::Arc;

use penstock_cl_sys::{CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, CL_PLATFORM_NAME, CL_PLATFORM_VERSION};
use penstock_dql::{Attribute, NodeFacts, Query, RawDevice, Value};
use penstock_link::Address;
use penstock_wire::describe::{self, Info, NodeDescription};

use crate::config::{Config, Placement};
use crate::pool::{Device, Pool};

/// File with an id that differs between hosts even if their names are equal.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

impl Pool {
    /// Returns the devices that a program gets: those of the configured query, rotated as the
    /// configured placement says.
    pub fn chosen(&self, config: &Config) -> Vec<Arc<Device>> {
        let mut devices = self.select(config.devices.as_ref());
        // All clients of a pool have the same first node, which counts them.
        if let (Placement::RoundRobin, Some(node)) = (config.placement, self.nodes().first()) {
            turn(&mut devices, node.description().turn.before);
        }
        devices
    }

    /// Returns the devices that `query` selects, in its order; without a query all devices, node by
    /// node. The rank of a node is its index among those that answered.
    pub fn select(&self, query: Option<&Query>) -> Vec<Arc<Device>> {
        let Some(query) = query else { return self.devices().cloned().collect() };
        let nodes: Vec<_> =
            self.nodes().iter().map(|node| (node.address(), node.description())).collect();
        let device =
            |(node, device)| self.nodes().get::<usize>(node)?.devices().get::<usize>(device);
        select_described(query, &nodes).into_iter().filter_map(device).cloned().collect()
    }
}

/// Returns the devices of these nodes that `query` selects, in its order: for each the index of the
/// node in the list, and of the device in the node.
pub fn select_described(
    query: &Query,
    nodes: &[(&Address, &NodeDescription)],
) -> Vec<(usize, usize)> {
    let boot = std::fs::read_to_string(BOOT_ID_FILE).unwrap_or_default();
    let known: Vec<_> = (0..)
        .zip(nodes)
        .flat_map(|(rank, (address, node))| of_node(rank, address, node, boot.trim()))
        .collect();
    query
        .select(&known)
        .into_iter()
        .filter_map(|index| known.get(index))
        .map(|it| it.place)
        .collect()
}

/// A device, with the facts of its node.
struct Known<'a> {
    place: (usize, usize),
    info: &'a Info,
    facts: NodeFacts<'a>,
}

impl penstock_dql::Device for Known<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>> {
        let raw = RawDevice { info: self.info, node: self.facts };
        // The value borrows from the device, not from `raw`, which ends here.
        raw.value(attribute)
    }
}

fn of_node<'a>(
    rank: usize,
    address: &Address,
    node: &'a NodeDescription,
    boot: &str,
) -> impl Iterator<Item = Known<'a>> {
    let same_boot = !boot.is_empty() && node.boot == boot;
    let is_local = same_boot || address.is_local();
    let count = node.platforms.iter().map(|platform| platform.devices.len()).sum();
    let devices = node
        .platforms
        .iter()
        .flat_map(|platform| platform.devices.iter().map(move |it| (platform, it)));
    devices.enumerate().map(move |(at, (platform, device))| {
        let find = |name| describe::find(&device.info, name);
        let facts = NodeFacts {
            hostname: Some(&node.host),
            rank: u64::try_from(rank).ok(),
            local: Some(is_local),
            platform: text(&platform.info, CL_PLATFORM_NAME),
            platform_version: text(&platform.info, CL_PLATFORM_VERSION),
            device_index: Some(device.index.into()),
            node_devices: u64::try_from(count).ok(),
            free_memory: find(CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).and_then(free_bytes),
            shared: Some(device.shares_host_memory),
            load: load(node, count),
            // Not measured.
            link_bandwidth: None,
            link_latency: None,
        };
        Known { place: (rank, at), info: &device.info, facts }
    })
}

/// Rotates the list by one device for each earlier client.
fn turn<T>(devices: &mut [T], clients_before: u64) {
    if let Some(by) = clients_before.checked_rem(devices.len() as u64) {
        devices.rotate_left(usize::try_from(by).unwrap_or(0));
    }
}

/// Returns the number of other sessions per device of the node, when this session began.
fn load(node: &NodeDescription, devices: usize) -> Option<f64> {
    let devices = u32::try_from(devices).ok().filter(|count| *count > 0)?;
    Some(f64::from(node.turn.beside) / f64::from(devices))
}

/// Returns a driver's text, which ends with a zero byte.
fn text(info: &Info, name: u32) -> Option<&str> {
    let bytes = describe::find(info, name)?.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(bytes.trim_ascii()).ok()
}

fn free_bytes(answer: &[u8]) -> Option<u64> {
    answer.first_chunk().and_then(|kib| u64::from_ne_bytes(*kib).checked_mul(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_next_client_begins_with_the_next_device() {
        let firsts: Vec<_> = (0..5)
            .map(|client| {
                let mut devices = ["a", "b", "c"];
                turn(&mut devices, client);
                devices[0]
            })
            .collect();
        assert_eq!(firsts, ["a", "b", "c", "a", "b"]);
        turn::<u8>(&mut [], 7);
    }

    #[test]
    fn what_platforms_and_drivers_answer_is_read() {
        let info = vec![(CL_PLATFORM_NAME, b"Some Platform \0".to_vec()), (1, b"\xff\0".to_vec())];
        assert_eq!(text(&info, CL_PLATFORM_NAME), Some("Some Platform"));
        assert_eq!((text(&info, 1), text(&info, 2)), (None, None));
        assert_eq!(free_bytes(&[&3u64.to_ne_bytes()[..], &[0; 8]].concat()), Some(3 << 10));
        assert_eq!((free_bytes(&u64::MAX.to_ne_bytes()), free_bytes(&[1, 2])), (None, None));
    }
}
