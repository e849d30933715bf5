//! The pool as OpenCL platforms. It is opened once, when the program first asks for platforms.

use std::fmt;
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{
    _cl_platform_id, CL_INVALID_PLATFORM, CL_PLATFORM_HOST_TIMER_RESOLUTION, cl_int,
    cl_name_version, cl_ulong,
};
use penstock_client::config::{Config, DEVICES_VARIABLE, Platforms};
use penstock_client::{Node, Pool, notice};
use penstock_process::variable;
use penstock_wire::describe;

use super::device::Device;
use super::{context, extensions, log};
use crate::edge::{Handle, Object, Ref};

/// Object behind a `cl_platform_id`.
pub(crate) struct Platform {
    pub(crate) name: String,
    /// Its hosts without duplicates, separated by spaces.
    pub(crate) hosts: String,
    pub(crate) extensions: Vec<cl_name_version>,
    /// `CL_PLATFORM_HOST_TIMER_RESOLUTION`; 0 if some device has no clock that can be queried.
    pub(crate) timer_resolution: cl_ulong,
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
    fn create(
        name: String,
        nodes: &[Arc<Node>],
        devices: Vec<Arc<penstock_client::Device>>,
    ) -> Ref<Self> {
        let mut hosts: Vec<_> = nodes.iter().map(|node| node.host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let platform = Handle::create_first(Self {
            name,
            hosts: hosts.join(" "),
            extensions: extensions::common(&devices),
            timer_resolution: timer_resolution(nodes),
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

/// Returns the platforms; an empty list without a pool.
pub(crate) fn platforms() -> &'static [Ref<Platform>] {
    // The pool stays open until the process ends: nothing may run in a driver at exit.
    static PLATFORMS: OnceLock<(Option<Pool>, Vec<Ref<Platform>>)> = OnceLock::new();
    &PLATFORMS
        .get_or_init(|| {
            open().map_or_else(|| (None, Vec::new()), |(pool, made)| (Some(pool), made))
        })
        .1
}

fn open() -> Option<(Pool, Vec<Ref<Platform>>)> {
    if variable::WORKER.is_on() {
        return None;
    }
    let config = Config::load().inspect_err(|error| notice::once(format_args!("{error}"))).ok()?;
    if config.nodes.is_empty() {
        // This is no error: the driver may be installed on a host whose user has no pool.
        log::line(format_args!("no nodes are configured; name them in PENSTOCK_NODES"));
        return None;
    }
    let key =
        config.load_key().inspect_err(|error| notice::once(format_args!("{error}"))).ok().flatten();
    let pool = Pool::open(&config.addresses(), key.as_ref(), config.timeout, notice::print);
    let devices = pool.chosen(&config);
    let of_node =
        |node: &Node| devices.iter().filter(|it| it.node() == node.index()).cloned().collect();
    let is_used = |node: &&Arc<Node>| devices.iter().any(|device| device.node() == node.index());
    let nodes: Vec<_> = pool.nodes().iter().filter(is_used).cloned().collect();
    if nodes.is_empty() {
        let all = pool.devices().count();
        if config.devices.is_some() && all > 0 {
            notice::once(format_args!(
                "{DEVICES_VARIABLE} selects none of the pool's {all} devices"
            ));
        }
        return None;
    }
    context::hear_errors(&nodes);
    let platforms = match config.platforms {
        Platforms::Pool => vec![Platform::create("Penstock".to_owned(), &nodes, devices)],
        Platforms::Node => {
            let create = |node: &Arc<Node>| {
                Platform::create(
                    format!("Penstock {}", node.host()),
                    std::slice::from_ref(node),
                    of_node(node),
                )
            };
            nodes.iter().map(create).collect()
        }
    };
    Some((pool, platforms))
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform")
            .field("name", &self.name)
            .field("devices", &self.devices().len())
            .finish_non_exhaustive()
    }
}
