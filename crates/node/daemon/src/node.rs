//! What a worker finds on its node: platforms and devices, and their description for clients.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use penstock_cl_sys::{CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU};
use penstock_device as device;
use penstock_wire::describe::{
    DeviceDescription, NodeDescription, PlatformDescription, Turn, find,
};
use penstock_wire::library::{DEVICE_LIBRARIES, Kind, Libraries};
use penstock_wire::{frame, limits};

use crate::builder::{Builders, Rehearsals};
use crate::pocl::is_pocl;
use crate::usage::Usage;

/// Platforms and devices that a worker can use.
pub struct Node {
    platforms: Vec<device::Platform>,
    devices: Vec<device::Device>,
    description: NodeDescription,
    usage: Option<Usage>,
    rehearsals: Option<Arc<Rehearsals>>,
}

impl Node {
    /// Loads and queries the drivers. If loading fails, returns an empty node and the error.
    pub fn find(addresses: Vec<String>) -> (Self, Option<device::LoadError>) {
        match device::Driver::load() {
            Ok(driver) => (Self::of(driver.platforms(), addresses), None),
            Err(error) => (Self::of(Vec::new(), addresses), Some(error)),
        }
    }

    fn of(platforms: Vec<device::Platform>, addresses: Vec<String>) -> Self {
        let mut devices: Vec<device::Device> = Vec::new();
        let mut described = Vec::new();
        for platform in &platforms {
            let mut description =
                PlatformDescription { info: platform.info(), devices: Vec::new() };
            for (device, index) in platform.devices().into_iter().zip((0..).skip(devices.len())) {
                description.devices.push(describe(&device, index));
            }
            devices.extend(platform.devices());
            described.push(description);
        }
        let description = NodeDescription {
            host: host(),
            boot: boot(),
            worker: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            addresses,
            platforms: described,
            turn: Turn::default(),
        };
        // If there is no memory for it, the time of use is not reported.
        let usage = Usage::new(devices.len()).ok();
        Self { platforms, devices, description, usage, rehearsals: None }
    }

    pub fn platforms(&self) -> &[device::Platform] {
        &self.platforms
    }

    /// Returns the devices of all platforms.
    pub fn devices(&self) -> &[device::Device] {
        &self.devices
    }

    /// Lets these builders build programs before the worker does.
    pub(crate) fn rehearse_with(&mut self, builders: Builders) {
        let rehearsals = Rehearsals::new(builders, &self.description, &self.devices);
        self.rehearsals = Some(Arc::new(rehearsals));
    }

    /// Returns what rehearses builds, unless programs build without that.
    pub(crate) fn rehearsals(&self) -> Option<Arc<Rehearsals>> {
        self.rehearsals.clone()
    }

    /// Returns whether a driver starts other programs: PoCL starts the linker.
    pub(crate) fn runs_programs(&self) -> bool {
        self.description.platforms.iter().any(|platform| is_pocl(&platform.info))
    }

    /// Returns whether all drivers are PoCL, and all devices are the host's processors.
    pub(crate) fn is_pocl(&self) -> bool {
        let platforms = &self.description.platforms;
        let mut devices = platforms.iter().flat_map(|platform| &platform.devices);
        let is_cpu = |device: &DeviceDescription| {
            find(&device.info, CL_DEVICE_TYPE) == Some(&CL_DEVICE_TYPE_CPU.to_ne_bytes()[..])
        };
        !self.devices.is_empty()
            && platforms.iter().all(|platform| is_pocl(&platform.info))
            && devices.all(is_cpu)
    }

    /// Returns the counters of its devices' use.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Returns the description that clients get.
    pub fn description(&self) -> &NodeDescription {
        &self.description
    }

    /// Encodes the description as it is sent before any call: length and content, with the client's
    /// `turn` and perhaps another address of the daemon. Has only the devices with these numbers,
    /// if any are given. Leaves out the last platforms if the description would be too long.
    pub fn encoded(&self, turn: Turn, reach: Option<String>, devices: Option<&[u32]>) -> Vec<u8> {
        let mut description = NodeDescription { turn, ..self.description.clone() };
        description.addresses.extend(reach);
        if let Some(devices) = devices {
            description = only(description, devices);
        }
        let mut bytes = frame::encode(&description);
        while bytes.len() > limits::DESCRIPTION_BYTES_MAX && description.platforms.pop().is_some() {
            bytes = frame::encode(&description);
        }
        // At most DESCRIPTION_BYTES_MAX, which fits.
        let length = u32::try_from(bytes.len()).unwrap_or_default();
        [length.to_le_bytes().as_slice(), &bytes].concat()
    }
}

/// Leaves only the devices with these numbers. All platforms stay, because clients and workers know
/// a platform by its position.
pub(crate) fn only(mut description: NodeDescription, devices: &[u32]) -> NodeDescription {
    for platform in &mut description.platforms {
        platform.devices.retain(|device| devices.contains(&device.index));
    }
    description
}

/// Describes a device that has this index in the node.
pub(crate) fn describe(device: &device::Device, index: u32) -> DeviceDescription {
    let (mut info, gpu) = (device.info(), device.gpu());
    let libraries = device.libraries();
    info.extend(libraries.map(|served| (DEVICE_LIBRARIES, served.to_bytes().to_vec())));
    DeviceDescription { index, info, shares_host_memory: device.shares_host_memory(), gpu }
}

/// Writes the node's description into a memfd, which the worker sends to the daemon.
pub(crate) fn description_file(node: &Node) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("penstock-description", rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = File::from(file);
    file.write_all_at(&frame::encode(node.description()), 0)?;
    Ok(file.into())
}

/// Reads the description from memory that a worker sent, and may still write to; `None` if invalid.
pub(crate) fn read_description(memory: OwnedFd) -> Option<NodeDescription> {
    let file = File::from(memory);
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if length > limits::DESCRIPTION_BYTES_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).ok()?;
    frame::decode("the node's description", &bytes).ok()
}

/// Returns the calls of CUDA's libraries that a device of the node could serve and does not. Only
/// devices that compute on the host's memory lack packages.
pub(crate) fn missing_libraries(node: &NodeDescription) -> Vec<Kind> {
    let devices = node.platforms.iter().flat_map(|platform| &platform.devices);
    let devices = devices.filter(|device| device.shares_host_memory);
    let served = devices.filter_map(|device| find(&device.info, DEVICE_LIBRARIES));
    let all: Vec<_> = served.map(Libraries::from_bytes).collect();
    Kind::ALL.into_iter().filter(|kind| all.iter().any(|served| !served.has(*kind))).collect()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

/// Returns the host's name.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the kernel's boot id. Processes with the same id are on the same host.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Returns the memory of each device in bytes, as far as the driver tells it.
pub(crate) fn memory_of(node: &NodeDescription) -> Vec<Option<u64>> {
    let devices = node.platforms.iter().flat_map(|platform| &platform.devices);
    let told = |device: &DeviceDescription| {
        let bytes = find(&device.info, CL_DEVICE_GLOBAL_MEM_SIZE)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    devices.map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_through_memory() {
        let node = Node::of(Vec::new(), vec!["tcp:a:1".into()]);
        let read = read_description(description_file(&node).unwrap()).unwrap();
        assert_eq!(&read, node.description());
        let garbage = File::from(
            rustix::fs::memfd_create("penstock-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        garbage.write_all_at(&[0xff; 64], 0).unwrap();
        assert_eq!(read_description(garbage.try_clone().unwrap().into()), None);
        garbage.set_len(limits::DESCRIPTION_BYTES_MAX as u64 + 1).unwrap();
        assert_eq!(read_description(garbage.into()), None);
    }
}
