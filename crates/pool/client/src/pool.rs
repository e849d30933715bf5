//! The pool: its nodes and their devices.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use penstock_cl_sys::CL_DEVICE_GLOBAL_MEM_SIZE;
use penstock_link::{
    Address, InstanceId, LinkError, Opened, Progress, Receiver, Sender, Side, Trust, open_patiently,
};
use penstock_process::{Lock, log};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::cuda::GpuDescription;
use penstock_wire::describe::{self, DeviceDescription, Info, NodeDescription, Sensors, Timers};
use penstock_wire::hello::{Role, feature};
use penstock_wire::{FrameError, Status, U32, frame, limits};

use crate::claims::Claims;
use crate::config::{Config, Source};
use crate::error::{Error, Result};
use crate::notice::{self, LineReport, Tell};
use crate::peer::Links;
use crate::session::Session;
use crate::summary;

/// All devices that a program may use, on all their nodes.
#[derive(Debug)]
pub struct Pool {
    nodes: Vec<Arc<Node>>,
    absent: Vec<(Address, Error)>,
    // Keeps the links alive: sessions have only weak references to them.
    _peers: Arc<Links>,
}

pub struct Node {
    index: usize,
    address: Address,
    description: NodeDescription,
    session: Arc<Session>,
    devices: OnceLock<Vec<Arc<Device>>>,
}

pub struct Device {
    node: usize,
    host: Arc<str>,
    address: Arc<str>,
    session: Arc<Session>,
    platform: u32,
    index: u32,
    info: Info,
    shares_host_memory: bool,
    gpu: Option<GpuDescription>,
    parent: Option<Arc<Device>>,
}

impl Pool {
    /// Opens a session with each of `addresses`, all at the same time. Leaves out a daemon that
    /// says nothing for `patience`, and waits for a daemon that has the program wait in line as
    /// long as that daemon lives. [`Pool::absent`] lists the nodes that are left out. Several
    /// addresses of one daemon make one node.
    ///
    /// `tell` receives what the user of the program must know: which nodes are left out, have no
    /// devices, let the program wait, or, later, are lost.
    pub fn open<'a>(
        addresses: &[Address],
        trust: impl Into<Trust<'a>>,
        patience: Duration,
        tell: Tell,
    ) -> Self {
        Self::open_and_tell(addresses, trust.into(), patience, tell, false)
    }

    /// As [`Pool::open`], for the nodes of a configuration. The user's own daemon need not run if
    /// nobody has named it.
    pub fn of<'a>(config: &Config, trust: impl Into<Trust<'a>>, tell: Tell) -> Self {
        let may_be_gone = config.source == Source::OwnDaemon;
        let addresses = config.addresses();
        Self::open_and_tell(&addresses, trust.into(), config.timeout, tell, may_be_gone)
    }

    fn open_and_tell(
        addresses: &[Address],
        trust: Trust<'_>,
        patience: Duration,
        tell: Tell,
        may_be_gone: bool,
    ) -> Self {
        let several = addresses.len() > 1;
        let opening = Opening { trust, patience, several, tell, claims: Lock::default() };
        let opened = opening.open_all(addresses);
        let mut nodes = Vec::new();
        let mut absent = Vec::new();
        for (index, (address, opened)) in addresses.iter().zip(opened).enumerate() {
            match opened {
                Ok(Some(open)) if opening.holds(open.instance, index) => {
                    nodes.push(Arc::new(Node::new(nodes.len(), address, open, tell)));
                }
                // This address, or a better one, leads to a daemon that another session already
                // serves. A worker that was taken meanwhile sees the hang-up.
                Ok(_) => {}
                Err(error) => absent.push((address.clone(), error)),
            }
        }
        for (address, error) in &absent {
            let why = match error {
                Error::Unreachable { reason, .. } if may_be_gone && reason.is_nobody_there() => {
                    log!(Info, "{reason}");
                    continue;
                }
                Error::Unreachable { reason, .. } => notice::why_absent(reason, patience),
                other => other.to_string(),
            };
            tell(format_args!("node {address} is left out: {why}"));
        }
        for node in nodes.iter().filter(|node| node.devices().is_empty()) {
            tell(format_args!(
                "node {} has no devices; is an OpenCL driver installed there (clinfo -l)?",
                node.address()
            ));
        }
        Self::linked(nodes, absent)
    }

    /// Makes a pool of nodes to which there are links already.
    #[cfg(feature = "world")]
    pub fn over(nodes: Vec<LinkedNode>, tell: Tell) -> Self {
        let node = |(index, LinkedNode { address, description, features, link })| {
            let open = OpenNode { description, instance: None, link, features };
            Arc::new(Node::new(index, &address, open, tell))
        };
        Self::linked(nodes.into_iter().enumerate().map(node).collect(), Vec::new())
    }

    fn linked(nodes: Vec<Arc<Node>>, absent: Vec<(Address, Error)>) -> Self {
        let peers = Arc::new(Links::new(nodes.iter().map(|node| node.reach())));
        let weak = Arc::downgrade(&peers);
        for node in &nodes {
            node.session.set_peers(weak.clone());
        }
        Self { nodes, absent, _peers: peers }
    }

    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Returns the addresses of nodes that did not answer, each with its error.
    pub fn absent(&self) -> &[(Address, Error)] {
        &self.absent
    }

    /// Returns all devices of all nodes, in the order of the nodes.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.nodes.iter().flat_map(|node| node.devices())
    }
}

/// A node to which a test has made a link.
#[cfg(feature = "world")]
#[derive(Debug)]
pub struct LinkedNode {
    pub address: Address,
    pub description: NodeDescription,
    /// Features of the link.
    pub features: u64,
    pub link: (Sender, Receiver),
}

/// The inputs with which all nodes are opened.
struct Opening<'a> {
    trust: Trust<'a>,
    patience: Duration,
    /// Whether there are several addresses, which may lead to the same daemon.
    several: bool,
    tell: Tell,
    claims: Lock<Claims>,
}

/// A node that has given this client a worker.
struct OpenNode {
    description: NodeDescription,
    instance: Option<InstanceId>,
    link: (Sender, Receiver),
    features: u64,
}

impl Opening<'_> {
    fn open_all(&self, addresses: &[Address]) -> Vec<Result<Option<OpenNode>>> {
        // One node, which is the common case, needs no thread.
        if let [address] = addresses {
            return vec![self.open_node(0, address)];
        }
        let open = |(index, address)| self.open_node(index, address);
        let opened = penstock_process::at_once("penstock-open", addresses.iter().enumerate(), open);
        let failed = |(address, opened): (&Address, io::Result<_>)| {
            opened.unwrap_or_else(|source| {
                let doing = "opening a session in a thread";
                let reason = Arc::new(LinkError::System { doing, source });
                Err(Error::Unreachable { address: address.to_string().into(), reason })
            })
        };
        addresses.iter().zip(opened).map(failed).collect()
    }

    /// Opens one node. Returns `None` if its daemon is used through a better address.
    fn open_node(&self, index: usize, address: &Address) -> Result<Option<OpenNode>> {
        let unreachable = |reason| Error::Unreachable {
            address: address.to_string().into(),
            reason: Arc::new(reason),
        };
        let (mut instance, mut report) = (None, LineReport::default());
        let mut watch = |progress| {
            let goes_on = match progress {
                Progress::Met(met) => {
                    instance = met;
                    self.claims().claim(met, index, address)
                }
                Progress::InLine { ahead } => {
                    if report.is_due(penstock_process::now()) {
                        (self.tell)(format_args!(
                            "node {address} is busy: this program waits in line for it, at place \
                             {}",
                            u64::from(ahead) + 1
                        ));
                    }
                    self.holds(instance, index)
                }
            };
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let opened = open_patiently(
            address,
            Role::Client,
            self.trust,
            self.patience,
            self.several,
            &mut watch,
        );
        let opened = match opened {
            Err(LinkError::GivenUp { .. }) => return Ok(None),
            opened => opened.map_err(unreachable)?,
        };
        let description = self.hear_description(&opened).map_err(|error| match error {
            NotDescribed::Link(error) => unreachable(error),
            NotDescribed::Frame(error) => Error::Frame(error),
        })?;
        let devices = description.platforms.iter().map(|it| it.devices.len()).sum::<usize>();
        log!(Debug, "node {address} is open, with {devices} devices");
        // Without a device that works on the host's memory or copies it by itself, an arena would
        // only cost addresses and descriptors.
        let shares = description
            .platforms
            .iter()
            .flat_map(|it| &it.devices)
            .any(|device| device.shares_host_memory || device.gpu.is_some());
        let features =
            if shares { opened.features } else { opened.features & !feature::SHARED_ARENA };
        // Established immediately: other nodes may have this program wait in line, and a worker
        // does not wait for its client.
        let link =
            penstock_link::establish(opened.stream, features, Side::Client, to_client::check)
                .map_err(unreachable)?;
        Ok(Some(OpenNode { description, instance, link, features }))
    }

    fn hear_description(&self, opened: &Opened) -> Result<NodeDescription, NotDescribed> {
        let deadline = penstock_process::now() + self.patience;
        let name = "the node's description";
        let bytes_max = limits::DESCRIPTION_BYTES_MAX;
        let bytes = opened.stream.read_sized_until(name, bytes_max, deadline)?;
        frame::decode(name, &bytes).map_err(NotDescribed::Frame)
    }

    fn holds(&self, instance: Option<InstanceId>, index: usize) -> bool {
        self.claims().holds(instance, index)
    }

    fn claims(&self) -> penstock_process::Guard<'_, Claims> {
        self.claims.lock()
    }
}

/// The reason why a node's description did not arrive.
enum NotDescribed {
    Link(LinkError),
    Frame(FrameError),
}

impl From<LinkError> for NotDescribed {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl Node {
    fn new(index: usize, address: &Address, open: OpenNode, tell: Tell) -> Self {
        let OpenNode { description, link, features, .. } = open;
        let takes_headers = features & feature::HEADERS != 0;
        let name = format!("{} ({address})", description.host);
        let host = description.host.as_str().into();
        let tally = summary::of_node(&name);
        let session = Session::new(index, host, takes_headers, tally, link);
        let who = name.clone();
        session.notices.show_with(move |text| tell(format_args!("node {who}: {text}")));
        session.on_loss(move |reason| {
            tell(format_args!(
                "node {name} is lost: {reason}; what this program had there is gone"
            ));
        });
        Self { index, address: address.clone(), description, session, devices: OnceLock::new() }
    }

    /// Returns how workers of other nodes reach this node's worker: the boot id of its host, and
    /// the addresses of its daemon.
    fn reach(&self) -> (String, Vec<String>) {
        let mut addresses = self.description.addresses.clone();
        let own = self.address.to_string();
        // No worker may use this user's logins.
        if !addresses.contains(&own) && !self.address.logs_in() {
            addresses.push(own);
        }
        (self.description.boot.clone(), addresses)
    }

    /// Returns the node's index in the pool.
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn host(&self) -> &str {
        &self.description.host
    }

    /// Returns the address at which the daemon was reached.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn description(&self) -> &NodeDescription {
        &self.description
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub fn devices(&self) -> &[Arc<Device>] {
        self.devices.get_or_init(|| {
            let host: Arc<str> = self.description.host.as_str().into();
            let address: Arc<str> = self.address.to_string().into();
            let platforms = (0..).zip(&self.description.platforms);
            let devices = platforms
                .flat_map(|(index, platform)| platform.devices.iter().map(move |it| (index, it)));
            devices
                .map(|(platform, description)| {
                    Arc::new(Device {
                        node: self.index,
                        host: host.clone(),
                        address: address.clone(),
                        session: self.session.clone(),
                        platform,
                        index: description.index,
                        info: description.info.clone(),
                        gpu: description.gpu.clone(),
                        shares_host_memory: description.shares_host_memory,
                        parent: None,
                    })
                })
                .collect()
        })
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("host", &self.host())
            .field("address", &self.address.to_string())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device of a session whose worker the test plays.
    #[cfg(test)]
    pub(crate) fn of_test(session: &Arc<Session>) -> Arc<Self> {
        Arc::new(Self {
            node: session.node(),
            host: "host".into(),
            address: "address".into(),
            session: session.clone(),
            platform: 0,
            index: 0,
            info: Info::new(),
            shares_host_memory: false,
            gpu: None,
            parent: None,
        })
    }

    /// Returns the index of the device's node in the pool.
    pub fn node(&self) -> usize {
        self.node
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the index of the device's platform in its node.
    pub fn platform(&self) -> u32 {
        self.platform
    }

    /// Returns the device's index in its node, over all platforms.
    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the driver's answer to query `name` of `clGetDeviceInfo`.
    pub fn info(&self, name: u32) -> Option<&[u8]> {
        describe::find(&self.info, name)
    }

    /// Returns what CUDA's driver reports, if the device is a GPU that its node drives through
    /// this driver, see [`penstock_wire::cuda`].
    pub fn gpu(&self) -> Option<&GpuDescription> {
        self.gpu.as_ref()
    }

    /// Returns whether the device is a GPU that its node drives through CUDA's driver.
    pub fn is_cuda(&self) -> bool {
        self.gpu.is_some()
    }

    pub fn all_info(&self) -> &Info {
        &self.info
    }

    /// Returns whether kernels of the device see the worker's memory.
    pub fn shares_host_memory(&self) -> bool {
        self.shares_host_memory
    }

    /// Returns the status with which the device's worker has ended the session, if it has told one.
    pub fn fault(&self) -> Option<Status> {
        self.session.fault()
    }

    /// Returns whether all buffers of this device's platform lie in memory that this process has
    /// mapped, too, so that a map of a buffer moves nothing. That memory must be as large as the
    /// device's: the part of it that a guest shares with its host is smaller.
    pub fn shares_client_memory(&self) -> bool {
        let bytes = |answer: &[u8]| answer.try_into().ok().map(u64::from_ne_bytes);
        let device = self.info(CL_DEVICE_GLOBAL_MEM_SIZE).and_then(bytes);
        let shared = self.session.arena().map(|arena| arena.bytes());
        self.shares_host_memory && device.zip(shared).is_some_and(|(of, has)| has >= of)
    }

    /// Returns the parent device, if this is a sub-device.
    pub fn parent(&self) -> Option<&Arc<Device>> {
        self.parent.as_ref()
    }

    /// `clCreateSubDevices`. Waits for the worker.
    ///
    /// # Errors
    /// The driver's code.
    pub fn partition(self: &Arc<Self>, properties: &[i64]) -> Result<Vec<Arc<Device>>> {
        let call = to_worker::CreateSubDevices {
            request: penstock_wire::Id::NONE,
            device: U32::new(self.index),
        };
        let parts: Vec<DeviceDescription> =
            self.session.request(call, &frame::encode(&properties.to_vec())).wait()?;
        Ok(parts
            .into_iter()
            .map(|part| {
                Arc::new(Device {
                    node: self.node,
                    host: self.host.clone(),
                    address: self.address.clone(),
                    session: self.session.clone(),
                    platform: self.platform,
                    index: part.index,
                    info: part.info,
                    gpu: part.gpu,
                    shares_host_memory: part.shares_host_memory,
                    parent: Some(self.clone()),
                })
            })
            .collect())
    }

    /// `clGetDeviceAndHostTimer`. Waits for the worker.
    ///
    /// # Errors
    /// The driver's code.
    pub fn timers(&self) -> Result<Timers> {
        let call = to_worker::DeviceTimer {
            request: penstock_wire::Id::NONE,
            device: U32::new(self.index),
        };
        self.session.request(call, &[]).wait()
    }

    /// Returns how busy the device is. Waits for the worker.
    ///
    /// # Errors
    /// If the worker is lost.
    pub fn sensors(&self) -> Result<Sensors> {
        let call = to_worker::DeviceSensors {
            request: penstock_wire::Id::NONE,
            device: U32::new(self.index),
        };
        self.session.request(call, &[]).wait()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("host", &self.host)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
