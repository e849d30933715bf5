//! Platforms.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{
    _cl_platform_id, CL_INVALID_PLATFORM, CL_PLATFORM_HOST_TIMER_RESOLUTION, cl_int,
    cl_name_version, cl_ulong,
};
use penstock_client::Node;
use penstock_wire::describe;

use super::device::Device;
use super::extensions;
use crate::edge::{Handle, Object, Ref};

/// Object behind a `cl_platform_id`.
pub(crate) struct Platform {
    pub(crate) name: String,
    /// Its hosts without duplicates, separated by spaces.
    pub(crate) hosts: String,
    pub(crate) extensions: Vec<cl_name_version>,
    /// `CL_PLATFORM_HOST_TIMER_RESOLUTION`; 0 if some device has no clock that can be queried.
    pub(crate) timer_resolution: cl_ulong,
    /// Whether its devices belong to one platform of one node, so that no context needs copies.
    pub(super) is_one_place: bool,
    devices: OnceLock<Vec<Ref<Device>>>,
}

impl Object for Platform {
    type Raw = _cl_platform_id;
    const INVALID: cl_int = CL_INVALID_PLATFORM;
}

impl Platform {
    /// Returns the root devices.
    pub(crate) fn devices(&self) -> &[Ref<Device>] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    /// Creates a platform of `devices`, which are on `nodes`.
    pub(super) fn create(
        name: String,
        nodes: &[Arc<Node>],
        devices: Vec<Arc<penstock_client::Device>>,
    ) -> Ref<Self> {
        let mut hosts: Vec<_> = nodes.iter().map(|node| node.host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let places: BTreeSet<_> = devices.iter().map(|it| (it.node(), it.platform())).collect();
        let platform = Handle::create_first(Self {
            name,
            hosts: hosts.join(" "),
            extensions: extensions::common(&devices),
            timer_resolution: timer_resolution(nodes),
            is_one_place: places.len() == 1,
            devices: OnceLock::new(),
        });
        let devices =
            devices.into_iter().map(|device| Device::create(device, &platform, None)).collect();
        // No other thread has the platform yet.
        _ = platform.devices.set(devices);
        platform
    }
}

/// Returns 1 (ns) if all drivers have a host timer, and 0 otherwise. A clock shared by the client
/// and all devices needs a timer of every driver; ours counts nanoseconds.
fn timer_resolution(nodes: &[Arc<Node>]) -> cl_ulong {
    let platforms = nodes.iter().flat_map(|node| &node.description().platforms);
    let has_timer = |info| {
        describe::find(info, CL_PLATFORM_HOST_TIMER_RESOLUTION)
            .is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
    };
    platforms
        .filter(|platform| !platform.devices.is_empty())
        .all(|platform| has_timer(&platform.info))
        .into()
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform")
            .field("name", &self.name)
            .field("devices", &self.devices().len())
            .finish_non_exhaustive()
    }
}
