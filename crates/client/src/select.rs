//! Which of the pool's devices a query selects.

use std::sync::Arc;

use penstock_dql::{Attribute, NodeFacts, Query, RawDevice, Value};
use penstock_link::Address;
use penstock_wire::describe::{self, Info};

use crate::config::{Config, Placement};
use crate::pool::{Device, Node, Pool};

const CL_PLATFORM_VERSION: u32 = 0x0901;
const CL_PLATFORM_NAME: u32 = 0x0902;
/// `size_t`s: the free memory and the largest free block, in KiB.
const CL_DEVICE_GLOBAL_FREE_MEMORY_AMD: u32 = 0x4039;

/// Tells two nodes on one host from two hosts, whatever their names are.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

impl Pool {
    /// The devices that a program gets: what the configured query selects, turned as the configured placement says.
    pub fn chosen(&self, config: &Config) -> Vec<Arc<Device>> {
        let mut devices = self.select(config.devices.as_ref());
        // Clients of one pool have one first node, which counts them.
        if let (Placement::RoundRobin, Some(node)) = (config.placement, self.nodes().first()) {
            turn(&mut devices, node.description().turn.before);
        }
        devices
    }

    /// The devices that `query` selects, in its order; without a query all devices, node by node. The rank of a node is its
    /// index among those that answered.
    pub fn select(&self, query: Option<&Query>) -> Vec<Arc<Device>> {
        let Some(query) = query else { return self.devices().cloned().collect() };
        let boot = std::fs::read_to_string(BOOT_ID_FILE).unwrap_or_default();
        let known: Vec<_> = self.nodes().iter().flat_map(|node| of_node(node, boot.trim())).collect();
        query
            .select(&known)
            .into_iter()
            .filter_map(|index| known.get(index))
            .map(|it| it.device.clone())
            .collect()
    }
}

/// A device, and what is known of its node.
struct Known<'a> {
    device: &'a Arc<Device>,
    facts: NodeFacts<'a>,
}

impl penstock_dql::Device for Known<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<Value<'_>> {
        let Self { device, facts: node } = self;
        let raw = RawDevice { info: device.all_info(), node: *node };
        // What is borrowed is the device's, and not the description's that ends here.
        raw.value(attribute)
    }
}

fn of_node<'a>(node: &'a Node, boot: &str) -> impl Iterator<Item = Known<'a>> {
    let description = node.description();
    let same_boot = !boot.is_empty() && description.boot == boot;
    let is_local = same_boot || matches!(node.address(), Address::Unix(_));
    node.devices().iter().map(move |device| {
        let platform =
            usize::try_from(device.platform()).ok().and_then(|index| description.platforms.get(index));
        let text = |name| platform.and_then(|platform| text(&platform.info, name));
        let facts = NodeFacts {
            hostname: Some(node.host()),
            rank: u64::try_from(node.index()).ok(),
            local: Some(is_local),
            platform: text(CL_PLATFORM_NAME),
            platform_version: text(CL_PLATFORM_VERSION),
            device_index: Some(device.index().into()),
            node_devices: u64::try_from(node.devices().len()).ok(),
            free_memory: device.info(CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).and_then(free_bytes),
            shared: Some(device.shares_host_memory()),
            load: load(node),
            // Not measured.
            link_bandwidth: None,
            link_latency: None,
        };
        Known { device, facts }
    })
}

/// Begins the list with the next device for each client before this one.
fn turn<T>(devices: &mut [T], clients_before: u64) {
    if let Some(by) = clients_before.checked_rem(devices.len() as u64) {
        devices.rotate_left(usize::try_from(by).unwrap_or(0));
    }
}

/// Sessions beside ours for each device of the node, when ours began.
fn load(node: &Node) -> Option<f64> {
    let devices = u32::try_from(node.devices().len()).ok().filter(|count| *count > 0)?;
    Some(f64::from(node.description().turn.beside) / f64::from(devices))
}

/// A driver's text, which ends with a zero.
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
