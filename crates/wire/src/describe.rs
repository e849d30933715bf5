//! What a node tells of itself. Information queries travel as the bytes that the driver answered, by query number, so that
//! a query which Penstock has never heard of is answered too.

use serde::{Deserialize, Serialize};

/// Answers of a driver: query number (`CL_DEVICE_NAME`...) and the bytes of its answer.
pub type Info = Vec<(u32, Vec<u8>)>;

/// The bytes that answer query `name`.
pub fn find(info: &Info, name: u32) -> Option<&[u8]> {
    info.iter().find(|(known, _)| *known == name).map(|(_, bytes)| bytes.as_slice())
}

/// A node: one host with a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Its host name.
    pub host: String,
    /// The kernel's boot id: two nodes with the same one are on the same host.
    pub boot: String,
    /// Process id of the worker, for messages.
    pub worker: u32,
    /// Version of the daemon, for messages.
    pub version: String,
    /// Addresses where the daemon listens, for workers of other nodes.
    pub addresses: Vec<String>,
    /// Its OpenCL platforms.
    pub platforms: Vec<PlatformDescription>,
    /// How busy it was when this client came.
    pub turn: Turn,
}

/// A session's place among all that a daemon served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Sessions that the daemon had served before, ended ones too.
    pub before: u64,
    /// Sessions beside this one when it began.
    pub beside: u32,
}

/// What a daemon tells a tool that asks for its node: the answer to [`crate::hello::Role::Survey`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The node, as a client that came now would see it.
    pub node: NodeDescription,
    /// What is wrong with the node's drivers, if anything is.
    pub problem: Option<String>,
}

/// An OpenCL platform of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformDescription {
    /// `clGetPlatformInfo`.
    pub info: Info,
    /// Its devices.
    pub devices: Vec<DeviceDescription>,
}

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Its index in the node, over all platforms; sub-devices are counted on.
    pub index: u32,
    /// `clGetDeviceInfo`.
    pub info: Info,
    /// Whether kernels and the worker see the same memory (found by trying): then any host address can be shared.
    pub shares_host_memory: bool,
}

/// How busy a device is; what is not known is none. Two of them give the share of time between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    /// Memory that nobody uses, in bytes.
    pub memory_free: Option<u64>,
    /// Time that its cores worked, together, since some moment, in ns.
    pub busy_ns: Option<u64>,
    /// Time that they could have worked since that moment, in ns.
    pub capacity_ns: Option<u64>,
}

/// `clGetDeviceAndHostTimer`, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// The device's clock, the one of profiling.
    pub device: u64,
    /// The worker's monotonic clock at the same moment.
    pub host: u64,
}

/// `cl_image_format` and `cl_image_desc`, without pitches: content travels without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDescription {
    /// `image_channel_order`.
    pub channel_order: u32,
    /// `image_channel_data_type`.
    pub channel_type: u32,
    /// `image_type`.
    pub image_type: u32,
    /// `image_width`, in pixels.
    pub width: u64,
    /// `image_height`, in pixels.
    pub height: u64,
    /// `image_depth`, in pixels.
    pub depth: u64,
    /// `image_array_size`.
    pub array_size: u64,
    /// `image_row_pitch` in bytes, only for an image made from a buffer.
    pub row_pitch: u64,
    /// `image_slice_pitch` in bytes, only for an image made from a buffer.
    pub slice_pitch: u64,
    /// `num_mip_levels`.
    pub mip_levels: u32,
    /// `num_samples`.
    pub samples: u32,
}

/// Build, compile or link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrder {
    /// Node-wide indices of the devices to build for.
    pub devices: Vec<u32>,
    /// The options; none where the program gave `NULL`, which is not the same as an empty text for each driver.
    pub options: Option<String>,
    /// Compile: header programs, by the name under which they are included. Link: the inputs, names empty.
    pub programs: Vec<(String, u64)>,
}

/// `clCreateProgramWithBuiltInKernels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltInKernels {
    /// Node-wide indices of the devices.
    pub devices: Vec<u32>,
    /// The names, separated by semicolons.
    pub names: String,
}

/// What became of `clCreateProgramWithBinary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// For each binary, in their order: whether the driver takes it.
    pub statuses: Vec<i32>,
    /// For each device of the program: node-wide index and the answers of `clGetProgramBuildInfo` that do not need a build.
    pub devices: Vec<(u32, Info)>,
}

/// How a build, compile or link ended, and all that a client may ask about its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// What the driver's call returned.
    pub status: i32,
    /// For each device of the program: node-wide index and the answers of `clGetProgramBuildInfo`.
    pub devices: Vec<(u32, Info)>,
    /// The program's kernels; empty unless it is an executable.
    pub kernels: Vec<KernelDescription>,
    /// `clGetProgramInfo` that a build decides (scope constructors and destructors, IL).
    pub info: Info,
}

/// A kernel of a built program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDescription {
    /// Its name.
    pub name: String,
    /// `CL_KERNEL_ATTRIBUTES`.
    pub attributes: String,
    /// Its arguments; `arg_info` says whether more than their number is known.
    pub args: Vec<ArgDescription>,
    /// Whether `clGetKernelArgInfo` is available.
    pub arg_info: bool,
    /// For each device: node-wide index and the answers of `clGetKernelWorkGroupInfo`.
    pub work_group: Vec<(u32, Info)>,
}

/// `clGetKernelArgInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgDescription {
    /// `CL_KERNEL_ARG_ADDRESS_QUALIFIER`.
    pub address: u32,
    /// `CL_KERNEL_ARG_ACCESS_QUALIFIER`.
    pub access: u32,
    /// `CL_KERNEL_ARG_TYPE_QUALIFIER`.
    pub type_qualifier: u64,
    /// `CL_KERNEL_ARG_TYPE_NAME`.
    pub type_name: String,
    /// `CL_KERNEL_ARG_NAME`.
    pub name: String,
}

/// Where another worker of the same client waits, and what lets one in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInvitation {
    /// Addresses of the other node's daemon, best first.
    pub addresses: Vec<String>,
    /// What [`crate::calls::to_worker::AdmitPeer`] told the other worker.
    pub ticket: [u8; crate::hello::TICKET_BYTES],
}

/// Which device is where in a symmetric heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapPlan {
    /// For each PE the index of the member (worker) that it belongs to.
    pub members: Vec<u32>,
}

/// How one PE of a heap reaches another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapPath {
    /// It is the PE itself.
    Own,
    /// Both see the same memory: loads and stores.
    Shared,
    /// Through the proxies of their workers.
    Proxy,
    /// The same, and UCX carries the proxies' bytes. Only of nodes that were told to use it.
    ProxyUcx,
}

impl std::fmt::Display for HeapPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::Proxy => "proxy",
            Self::ProxyUcx => "proxy (ucx)",
        })
    }
}

/// A heap that has been started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapStarted {
    /// Why it could not be started.
    pub refused: Option<String>,
    /// For each of the worker's own PEs: the PE, and its path to each.
    pub paths: Vec<(u32, Vec<HeapPath>)>,
}
