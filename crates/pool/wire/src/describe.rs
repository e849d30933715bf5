//! How a node describes itself. The answers to information queries travel as the driver's bytes, by
//! query number, so that queries unknown to Penstock are answered too.

use penstock_cl_sys::{
    CL_BUILD_ERROR, CL_PROGRAM_BINARY_TYPE, CL_PROGRAM_BINARY_TYPE_NONE, CL_PROGRAM_BUILD_LOG,
    CL_PROGRAM_BUILD_OPTIONS, CL_PROGRAM_BUILD_STATUS,
};
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::{cuda, text};

/// Answers of a driver: the number of each query (`CL_DEVICE_NAME`...) and the bytes of its answer.
pub type Info = Vec<(u32, Vec<u8>)>;

/// Returns the bytes that answer query `name`.
pub fn find(info: &Info, name: u32) -> Option<&[u8]> {
    info.iter().find(|(known, _)| *known == name).map(|(_, bytes)| bytes.as_slice())
}

/// A node: one host with a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    pub host: String,
    /// Boot id of the host's kernel. Two nodes with the same boot id are on the same host.
    pub boot: String,
    /// Process id of the worker, for messages.
    pub worker: u32,
    /// Version of the daemon, for messages.
    pub version: String,
    /// Addresses at which the daemon listens, for workers of other nodes.
    pub addresses: Vec<String>,
    pub platforms: Vec<PlatformDescription>,
    /// How busy the node was when this client came.
    pub turn: Turn,
}

/// A session's place among all sessions of its daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of sessions that the daemon had served before, including those that have ended.
    pub before: u64,
    /// Number of other sessions when this one began.
    pub beside: u32,
}

/// A daemon's answer to a tool that asks for its node ([`crate::hello::Role::Survey`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The node as a client that came now would see it.
    pub node: NodeDescription,
    /// What is wrong with the node's drivers, or `None`.
    pub problem: Option<String>,
}

/// An OpenCL platform of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformDescription {
    /// The driver's answers to `clGetPlatformInfo`.
    pub info: Info,
    pub devices: Vec<DeviceDescription>,
}

/// A device of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Index in the node, over all platforms. Sub-devices continue the numbering.
    pub index: u32,
    /// The driver's answers to `clGetDeviceInfo`.
    pub info: Info,
    /// Whether kernels and the worker see the same memory, found by a probe. If they do, any host
    /// address can be shared.
    pub shares_host_memory: bool,
    /// What CUDA's driver reports, if the node drives the device through it.
    pub gpu: Option<cuda::GpuDescription>,
}

/// Load of a device; a field is `None` if unknown. The differences of two readings give the share
/// of busy time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    /// Unused memory, in bytes.
    pub memory_free: Option<u64>,
    /// Time that all cores together have worked since a fixed moment, in ns.
    pub busy_ns: Option<u64>,
    /// Time that all cores together could have worked since that moment, in ns.
    pub capacity_ns: Option<u64>,
}

/// Clocks of `clGetDeviceAndHostTimer`, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// The device's clock, which profiling uses.
    pub device: u64,
    /// The worker's monotonic clock at the same moment.
    pub host: u64,
}

/// `cl_image_format` and `cl_image_desc`, with sizes in pixels. Pitches matter only for images made
/// from a buffer, because content travels without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDescription {
    pub channel_order: u32,
    /// Value of the field `image_channel_data_type`.
    pub channel_type: u32,
    pub image_type: u32,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub array_size: u64,
    /// Row pitch in bytes, only for an image made from a buffer.
    pub row_pitch: u64,
    /// Slice pitch in bytes, only for an image made from a buffer.
    pub slice_pitch: u64,
    pub mip_levels: u32,
    pub samples: u32,
}

/// The inputs of a build, compilation or link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrder {
    /// Node-wide indices of the devices to build for.
    pub devices: Vec<u32>,
    /// The options, or `None` if the program gave `NULL`. Some drivers distinguish `NULL` from an
    /// empty text.
    pub options: Option<String>,
    /// For a compilation: the header programs, each with the name under which it is included. For a
    /// link: the input programs, with empty names.
    pub programs: Vec<(String, u64)>,
    /// For a CUDA module: the names of the variables that the report shall list if the module has
    /// them. Without names, the report lists the variables that are visible in the module (PTX
    /// text, or the symbol table of a cubin).
    pub globals: Option<Vec<String>>,
}

/// The inputs of `clCreateProgramWithBuiltInKernels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltInKernels {
    /// Node-wide indices of the devices.
    pub devices: Vec<u32>,
    /// Names of the kernels, separated by semicolons.
    pub names: String,
}

/// The result of `clCreateProgramWithBinary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// For each binary, in order: the status with which the driver took or refused it.
    pub statuses: Vec<i32>,
    /// For each device of the program: its node-wide index and the answers of
    /// `clGetProgramBuildInfo` that need no build.
    pub devices: Vec<(u32, Info)>,
}

/// The result of a build, compilation or link, with all that a client may ask about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Status that the driver's call returned.
    pub status: i32,
    /// For each device of the program: its node-wide index and the answers of
    /// `clGetProgramBuildInfo`.
    pub devices: Vec<(u32, Info)>,
    /// Kernels of the program; empty unless the program is an executable.
    pub kernels: Vec<KernelDescription>,
    /// Answers of `clGetProgramInfo` that depend on the build (scope constructors and destructors,
    /// IL).
    pub info: Info,
    /// Variables of a CUDA module.
    pub globals: Vec<cuda::Global>,
}

impl BuildReport {
    /// Returns the report of a build for these devices that failed before the worker's driver
    /// began it.
    pub fn failure(status: Status, devices: &[u32], options: Option<&str>, log: &str) -> Self {
        let options = options.unwrap_or_default();
        let info: Info = vec![
            (CL_PROGRAM_BUILD_STATUS, CL_BUILD_ERROR.to_ne_bytes().to_vec()),
            (CL_PROGRAM_BUILD_OPTIONS, [text::to_bytes(options), vec![0]].concat()),
            (CL_PROGRAM_BUILD_LOG, format!("{log}\n\0").into_bytes()),
            (CL_PROGRAM_BINARY_TYPE, CL_PROGRAM_BINARY_TYPE_NONE.to_ne_bytes().to_vec()),
        ];
        let devices = devices.iter().map(|index| (*index, info.clone())).collect();
        Self { status: status.0, devices, ..Self::default() }
    }
}

/// A kernel of a built program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDescription {
    pub name: String,
    /// Text of `CL_KERNEL_ATTRIBUTES`, as the driver gives it.
    pub attributes: String,
    /// Arguments of the kernel. If `arg_info` is false, only their number is known.
    pub args: Vec<ArgDescription>,
    /// Whether `clGetKernelArgInfo` is available.
    pub arg_info: bool,
    /// For each device: its node-wide index and the answers of `clGetKernelWorkGroupInfo`.
    pub work_group: Vec<(u32, Info)>,
    /// What CUDA's driver reports, if it has loaded the kernel.
    pub function: Option<cuda::FunctionDescription>,
}

/// The driver's answers to `clGetKernelArgInfo` for one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgDescription {
    /// Value of type `cl_kernel_arg_address_qualifier`.
    pub address: u32,
    /// Value of type `cl_kernel_arg_access_qualifier`.
    pub access: u32,
    /// Bits of type `cl_kernel_arg_type_qualifier`.
    pub type_qualifier: u64,
    pub type_name: String,
    pub name: String,
}

/// The addresses of another worker of the same client, and the ticket that admits a worker there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInvitation {
    /// Addresses of the other node's daemon, best first. One that ends with `#` and a public key is
    /// that of a daemon that the client has reached by SSH; only daemons read it.
    pub addresses: Vec<String>,
    /// The ticket that [`crate::calls::to_worker::AdmitPeer`] gave to the other worker.
    pub ticket: [u8; crate::hello::TICKET_BYTES],
}

/// What a client tells another client, so that the other's worker reaches its own worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInvitation {
    /// Boot id of the host. Addresses of one host are valid only for workers of the same boot.
    pub boot: String,
    /// The ticket is that of [`crate::calls::to_worker::AdmitGuest`].
    pub invitation: PeerInvitation,
}

/// The members of a symmetric heap's PEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapPlan {
    /// For each PE, the index of the member (worker) that it belongs to.
    pub members: Vec<u32>,
}

/// The path by which one PE of a heap reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapPath {
    /// Both are the same PE.
    Own,
    /// Both see the same memory and use loads and stores.
    Shared,
    /// The proxies of their workers carry the accesses.
    Proxy,
    /// As `Proxy`, and UCX carries the proxies' bytes. Used only by nodes whose configuration asks
    /// for it.
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

/// The result of starting a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapStarted {
    /// The reason why the heap could not be started, or `None`.
    pub refused: Option<String>,
    /// For each of the worker's own PEs: the PE, and its path to each PE of the heap.
    pub paths: Vec<(u32, Vec<HeapPath>)>,
}
