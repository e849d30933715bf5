//! Types of the runtime interface (`libcudart.so.12` and `.13`): layouts and numbers as programs compiled for them have them.
//!
//! A type whose layout differs between the two has both, with the version at the end of its name. The layouts are checked against
//! the headers of both versions by `tests/cuda/layout.c`.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// What a runtime function returns: [`codes`](crate::runtime_codes) has the values.
#[allow(non_camel_case_types, reason = "C's name")]
pub type cudaError_t = c_int;

/// Sizes of a grid or a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dim3 {
    /// Along x.
    pub x: c_uint,
    /// Along y.
    pub y: c_uint,
    /// Along z.
    pub z: c_uint,
}

/// `cudaMemcpyKind`.
pub mod copy_kind {
    use core::ffi::c_int;

    /// From the program's memory to the program's memory.
    pub const HOST_TO_HOST: c_int = 0;
    /// To the device.
    pub const HOST_TO_DEVICE: c_int = 1;
    /// From the device.
    pub const DEVICE_TO_HOST: c_int = 2;
    /// Within devices.
    pub const DEVICE_TO_DEVICE: c_int = 3;
    /// As the pointers tell.
    pub const DEFAULT: c_int = 4;
}

/// `cudaMemoryType`.
pub mod memory_type {
    use core::ffi::c_int;

    /// The program's own, unknown to CUDA.
    pub const UNREGISTERED: c_int = 0;
    /// The program's, made or registered by CUDA.
    pub const HOST: c_int = 1;
    /// A device's.
    pub const DEVICE: c_int = 2;
    /// Managed.
    pub const MANAGED: c_int = 3;
}

/// `cudaChannelFormatKind`.
pub mod channel_kind {
    use core::ffi::c_int;

    /// Signed integers.
    pub const SIGNED: c_int = 0;
    /// Unsigned integers.
    pub const UNSIGNED: c_int = 1;
    /// Floating point.
    pub const FLOAT: c_int = 2;
    /// None.
    pub const NONE: c_int = 3;
}

/// `cudaChannelFormatDesc`: bits of each channel, and their kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFormatDesc {
    /// Bits of the first channel.
    pub x: c_int,
    /// Bits of the second.
    pub y: c_int,
    /// Bits of the third.
    pub z: c_int,
    /// Bits of the fourth.
    pub w: c_int,
    /// Of [`channel_kind`].
    pub f: c_int,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PitchedPtr {
    /// The memory.
    pub ptr: *mut c_void,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Width in bytes.
    pub xsize: usize,
    /// Height in rows.
    pub ysize: usize,
}

/// `cudaExtent`: width in elements (of a byte for plain memory), height and depth in rows and slices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Elements.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// `cudaPos`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pos {
    /// Elements.
    pub x: usize,
    /// Rows.
    pub y: usize,
    /// Slices.
    pub z: usize,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3DParms {
    /// The source, if it is an array.
    pub src_array: *mut c_void,
    /// Where in the source.
    pub src_pos: Pos,
    /// The source, if it is memory.
    pub src_ptr: PitchedPtr,
    /// The destination, if it is an array.
    pub dst_array: *mut c_void,
    /// Where in the destination.
    pub dst_pos: Pos,
    /// The destination, if it is memory.
    pub dst_ptr: PitchedPtr,
    /// How much.
    pub extent: Extent,
    /// Of [`copy_kind`].
    pub kind: c_int,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3DPeerParms {
    /// The source, if it is an array.
    pub src_array: *mut c_void,
    /// Where in the source.
    pub src_pos: Pos,
    /// The source, if it is memory.
    pub src_ptr: PitchedPtr,
    /// The source's device.
    pub src_device: c_int,
    /// The destination, if it is an array.
    pub dst_array: *mut c_void,
    /// Where in the destination.
    pub dst_pos: Pos,
    /// The destination, if it is memory.
    pub dst_ptr: PitchedPtr,
    /// The destination's device.
    pub dst_device: c_int,
    /// How much.
    pub extent: Extent,
}

/// `cudaPointerAttributes`, as version 12 has it; version 13 has [`POINTER_RESERVED_13`] more words of zeros behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    /// Of [`memory_type`].
    pub kind: c_int,
    /// The device.
    pub device: c_int,
    /// The address for kernels, or `NULL`.
    pub device_pointer: *mut c_void,
    /// The address for the program, or `NULL`.
    pub host_pointer: *mut c_void,
}

/// `long reserved[8]` behind [`PointerAttributes`] in version 13.
pub const POINTER_RESERVED_13: usize = 8;

/// [`PointerAttributes`] as version 13 has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes13 {
    /// What version 12 has.
    pub common: PointerAttributes,
    /// Zeros.
    pub reserved: [c_long; POINTER_RESERVED_13],
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuncAttributes {
    /// Static shared memory, bytes.
    pub shared_size_bytes: usize,
    /// Constant memory, bytes.
    pub const_size_bytes: usize,
    /// Local memory of a thread, bytes.
    pub local_size_bytes: usize,
    /// Largest block.
    pub max_threads_per_block: c_int,
    /// Registers of a thread.
    pub num_regs: c_int,
    /// Version of the PTX, times ten.
    pub ptx_version: c_int,
    /// Version of the binary, times ten.
    pub binary_version: c_int,
    /// Whether compiled with `-Xptxas --dlcm=ca`.
    pub cache_mode_ca: c_int,
    /// Largest dynamic shared memory, bytes.
    pub max_dynamic_shared_size_bytes: c_int,
    /// Percent of the on-chip memory wanted as shared memory.
    pub preferred_shmem_carveout: c_int,
    /// Whether a launch must name a cluster.
    pub cluster_dim_must_be_set: c_int,
    /// The cluster that it must be.
    pub required_cluster_width: c_int,
    /// The cluster that it must be.
    pub required_cluster_height: c_int,
    /// The cluster that it must be.
    pub required_cluster_depth: c_int,
    /// How clusters are spread.
    pub cluster_scheduling_policy_preference: c_int,
    /// Whether clusters may be larger than every device takes.
    pub non_portable_cluster_size_allowed: c_int,
    /// Zeros.
    pub reserved: [c_int; 16],
}

/// `cudaResourceType`.
pub mod resource_type {
    use core::ffi::c_int;

    /// An array.
    pub const ARRAY: c_int = 0;
    /// A mipmapped array.
    pub const MIPMAPPED_ARRAY: c_int = 1;
    /// Linear memory.
    pub const LINEAR: c_int = 2;
    /// Memory with a pitch.
    pub const PITCH_2D: c_int = 3;
}

/// What a [`ResourceDesc`] names as memory with a pitch: the largest of its forms; linear memory has its size where this has its width.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceMemory {
    /// The memory, or the array.
    pub pointer: u64,
    /// The channels.
    pub desc: ChannelFormatDesc,
    /// Width in elements; of linear memory its size in bytes.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes from row to row.
    pub pitch_in_bytes: usize,
}

/// `cudaResourceDesc` of version 12; version 13 has more behind it (see [`RESOURCE_DESC_13_BYTES`]).
///
/// The union in it is seen through its largest member: an array's handle is where memory has its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceDesc {
    /// Of [`resource_type`].
    pub kind: c_int,
    /// What it is.
    pub memory: ResourceMemory,
}

/// Bytes of version 13's `cudaResourceDesc`: its union is 128 bytes, and flags follow.
pub const RESOURCE_DESC_13_BYTES: usize = 144;

/// `cudaTextureDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TextureDesc {
    /// How each coordinate behaves outside: wrap, clamp, mirror, border.
    pub address_mode: [c_int; 3],
    /// Point or linear.
    pub filter_mode: c_int,
    /// Elements, or floats from 0 (or -1) to 1.
    pub read_mode: c_int,
    /// Whether to convert from sRGB.
    pub srgb: c_int,
    /// What is outside.
    pub border_color: [f32; 4],
    /// Whether coordinates go from 0 to 1.
    pub normalized_coords: c_int,
    /// Largest anisotropy.
    pub max_anisotropy: c_uint,
    /// Between levels: point or linear.
    pub mipmap_filter_mode: c_int,
    /// Added to the level.
    pub mipmap_level_bias: f32,
    /// Smallest level.
    pub min_mipmap_level_clamp: f32,
    /// Largest level.
    pub max_mipmap_level_clamp: f32,
    /// Whether to filter fully.
    pub disable_trilinear_optimization: c_int,
    /// Whether cube maps have no seams.
    pub seamless_cubemap: c_int,
}

/// `cudaResourceViewDesc` of version 12; version 13 has 16 words of zeros behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceViewDesc {
    /// The format.
    pub format: c_int,
    /// Elements.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// First level.
    pub first_mipmap_level: c_uint,
    /// Last level.
    pub last_mipmap_level: c_uint,
    /// First layer.
    pub first_layer: c_uint,
    /// Last layer.
    pub last_layer: c_uint,
}

/// Words of zeros behind [`ResourceViewDesc`] in version 13.
pub const VIEW_RESERVED_13: usize = 16;

/// `cudaLaunchAttributeID`: those the runtime looks at.
pub mod launch_attribute {
    use core::ffi::c_int;

    /// Nothing.
    pub const IGNORE: c_int = 0;
    /// All blocks run at once.
    pub const COOPERATIVE: c_int = 2;
}

/// `cudaLaunchAttribute`; the value is a union of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    /// Of [`launch_attribute`].
    pub id: c_int,
    /// Nothing.
    pub pad: c_int,
    /// The value.
    pub value: [u64; 8],
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Dynamic shared memory, bytes.
    pub dynamic_smem_bytes: usize,
    /// Where.
    pub stream: *mut c_void,
    /// More about it.
    pub attrs: *mut LaunchAttribute,
    /// How many of them.
    pub num_attrs: c_uint,
}

/// What `__cudaRegisterFatBinary` gets: the wrapper around a fat binary.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FatbinWrapper {
    /// [`FATBIN_WRAPPER_MAGIC`].
    pub magic: c_uint,
    /// 1, or 2 where relocatable device code was linked.
    pub version: c_uint,
    /// The fat binary.
    pub data: *const c_void,
    /// What was linked, in version 2.
    pub linked: *const c_void,
}

/// [`FatbinWrapper::magic`].
pub const FATBIN_WRAPPER_MAGIC: c_uint = 0x4662_43b1;

/// The device of memory that belongs to none: `cudaInvalidDeviceId`.
pub const INVALID_DEVICE: c_int = -2;

/// A text of C that the program owns.
pub type Text = *const c_char;
