//! Types of the runtime interface (`libcudart.so.12` and `.13`), with the layouts and numbers that
//! compiled programs use.
//!
//! A type whose layout differs between the versions has two definitions; the version ends the name.
//! `tests/cuda/layout.c` compares the layouts with the headers of both versions.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// Result of a runtime function, one of the [`codes`](crate::runtime_codes).
#[allow(non_camel_case_types, reason = "C's name")]
pub type cudaError_t = c_int;

/// Numbers of blocks in a grid, or of threads in a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

/// Values of CUDA's `cudaMemcpyKind`.
pub mod copy_kind {
    use core::ffi::c_int;

    pub const HOST_TO_HOST: c_int = 0;
    pub const HOST_TO_DEVICE: c_int = 1;
    pub const DEVICE_TO_HOST: c_int = 2;
    pub const DEVICE_TO_DEVICE: c_int = 3;
    /// The addresses determine the direction.
    pub const DEFAULT: c_int = 4;
}

/// Values of CUDA's `cudaMemoryType`.
pub mod memory_type {
    use core::ffi::c_int;

    /// Host memory that CUDA does not know.
    pub const UNREGISTERED: c_int = 0;
    /// Host memory that CUDA allocated or registered.
    pub const HOST: c_int = 1;
    pub const DEVICE: c_int = 2;
    pub const MANAGED: c_int = 3;
}

/// Values of CUDA's `cudaChannelFormatKind`.
pub mod channel_kind {
    use core::ffi::c_int;

    pub const SIGNED: c_int = 0;
    pub const UNSIGNED: c_int = 1;
    pub const FLOAT: c_int = 2;
    pub const NONE: c_int = 3;
}

/// `cudaChannelFormatDesc`: number of bits of each channel, and their kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFormatDesc {
    pub x: c_int,
    pub y: c_int,
    pub z: c_int,
    pub w: c_int,
    /// A constant of [`channel_kind`].
    pub f: c_int,
}

/// `cudaPitchedPtr`: rows of memory. `pitch`, from row to row, and the width `xsize` are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PitchedPtr {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub xsize: usize,
    /// Height, as a number of rows.
    pub ysize: usize,
}

/// `cudaExtent`: width in elements (bytes for linear memory), height in rows, depth in slices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaPos`: a position in elements (bytes for linear memory), rows and slices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// `cudaMemcpy3DParms`: a copy of a box.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3DParms {
    /// The source if it is an array.
    pub src_array: *mut c_void,
    pub src_pos: Pos,
    /// The source if it is memory.
    pub src_ptr: PitchedPtr,
    /// The destination if it is an array.
    pub dst_array: *mut c_void,
    pub dst_pos: Pos,
    /// The destination if it is memory.
    pub dst_ptr: PitchedPtr,
    pub extent: Extent,
    /// A constant of [`copy_kind`].
    pub kind: c_int,
}

/// `cudaMemcpy3DPeerParms`: a copy of a box between devices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3DPeerParms {
    /// The source if it is an array.
    pub src_array: *mut c_void,
    pub src_pos: Pos,
    /// The source if it is memory.
    pub src_ptr: PitchedPtr,
    pub src_device: c_int,
    /// The destination if it is an array.
    pub dst_array: *mut c_void,
    pub dst_pos: Pos,
    /// The destination if it is memory.
    pub dst_ptr: PitchedPtr,
    pub dst_device: c_int,
    pub extent: Extent,
}

/// `cudaPointerAttributes` of version 12. Version 13 appends [`POINTER_RESERVED_13`] zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    /// A constant of [`memory_type`].
    pub kind: c_int,
    pub device: c_int,
    /// Address for kernels, or null if there is none.
    pub device_pointer: *mut c_void,
    /// Address for the host, or null if there is none.
    pub host_pointer: *mut c_void,
}

/// Number of words of `reserved` in version 13.
pub const POINTER_RESERVED_13: usize = 8;

/// `cudaPointerAttributes` of version 13.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes13 {
    pub common: PointerAttributes,
    pub reserved: [c_long; POINTER_RESERVED_13],
}

/// `cudaFuncAttributes`: attributes of a kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuncAttributes {
    /// Static shared memory in bytes.
    pub shared_size_bytes: usize,
    /// Constant memory in bytes.
    pub const_size_bytes: usize,
    /// Local memory per thread in bytes.
    pub local_size_bytes: usize,
    pub max_threads_per_block: c_int,
    /// Number of registers per thread.
    pub num_regs: c_int,
    /// Version of the PTX, times ten.
    pub ptx_version: c_int,
    /// Version of the machine code, times ten.
    pub binary_version: c_int,
    /// Whether the code was compiled with `-Xptxas --dlcm=ca`.
    pub cache_mode_ca: c_int,
    /// Largest dynamic shared memory in bytes.
    pub max_dynamic_shared_size_bytes: c_int,
    /// Preferred percentage of the on-chip memory for shared memory.
    pub preferred_shmem_carveout: c_int,
    /// Whether a launch must give the size of a cluster.
    pub cluster_dim_must_be_set: c_int,
    pub required_cluster_width: c_int,
    pub required_cluster_height: c_int,
    pub required_cluster_depth: c_int,
    pub cluster_scheduling_policy_preference: c_int,
    /// Whether clusters may exceed the size that every device supports.
    pub non_portable_cluster_size_allowed: c_int,
    pub reserved: [c_int; 16],
}

/// Values of CUDA's `cudaResourceType`.
pub mod resource_type {
    use core::ffi::c_int;

    pub const ARRAY: c_int = 0;
    pub const MIPMAPPED_ARRAY: c_int = 1;
    pub const LINEAR: c_int = 2;
    pub const PITCH_2D: c_int = 3;
}

/// The largest member of the union in a resource: memory with a pitch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceMemory {
    /// Address of the memory, or handle of the array.
    pub pointer: u64,
    pub desc: ChannelFormatDesc,
    /// Width in elements. For linear memory, the size in bytes.
    pub width: usize,
    pub height: usize,
    /// Number of bytes from one row to the next.
    pub pitch_in_bytes: usize,
}

/// `cudaResourceDesc` of version 12. Version 13 appends fields, see [`RESOURCE_DESC_13_BYTES`].
///
/// The largest member stands for its union. An array's handle is where memory has its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceDesc {
    /// A constant of [`resource_type`].
    pub kind: c_int,
    pub memory: ResourceMemory,
}

/// Size of version 13's `cudaResourceDesc` in bytes: its union has 128 bytes, and flags follow.
pub const RESOURCE_DESC_13_BYTES: usize = 144;

/// `cudaTextureDesc`: how a texture is read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TextureDesc {
    /// Behaviour of each coordinate outside: wrap (0), clamp (1), mirror (2), border (3).
    pub address_mode: [c_int; 3],
    /// Nearest point (0), or linear (1).
    pub filter_mode: c_int,
    /// Elements (0), or floats from 0 (or -1) to 1 (1).
    pub read_mode: c_int,
    pub srgb: c_int,
    /// Colour outside the texture.
    pub border_color: [f32; 4],
    /// Whether coordinates go from 0 to 1.
    pub normalized_coords: c_int,
    pub max_anisotropy: c_uint,
    /// Filter between mipmap levels, as `filter_mode`.
    pub mipmap_filter_mode: c_int,
    /// Number added to the mipmap level.
    pub mipmap_level_bias: f32,
    pub min_mipmap_level_clamp: f32,
    pub max_mipmap_level_clamp: f32,
    pub disable_trilinear_optimization: c_int,
    /// Whether filtering crosses the edges of a cube map's faces.
    pub seamless_cubemap: c_int,
}

/// `cudaResourceViewDesc` of version 12. In version 13, [`VIEW_RESERVED_13`] words of zeros follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceViewDesc {
    pub format: c_int,
    /// Width of the view in elements.
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub first_mipmap_level: c_uint,
    pub last_mipmap_level: c_uint,
    pub first_layer: c_uint,
    pub last_layer: c_uint,
}

/// Number of words of zeros behind [`ResourceViewDesc`] in version 13.
pub const VIEW_RESERVED_13: usize = 16;

/// Values of `cudaLaunchAttributeID` that the runtime reads.
pub mod launch_attribute {
    use core::ffi::c_int;

    pub const IGNORE: c_int = 0;
    /// All blocks run at the same time.
    pub const COOPERATIVE: c_int = 2;
}

/// `cudaLaunchAttribute`. The value is a union of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    /// A constant of [`launch_attribute`].
    pub id: c_int,
    pub pad: c_int,
    pub value: [u64; 8],
}

/// `cudaLaunchConfig_t`: a launch with attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    /// Dynamic shared memory in bytes.
    pub dynamic_smem_bytes: usize,
    pub stream: *mut c_void,
    pub attrs: *mut LaunchAttribute,
    pub num_attrs: c_uint,
}

/// Argument of `__cudaRegisterFatBinary`: the wrapper around a fat binary.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FatbinWrapper {
    /// Always [`FATBIN_WRAPPER_MAGIC`] in a wrapper.
    pub magic: c_uint,
    /// 1, or 2 if relocatable device code was linked.
    pub version: c_uint,
    pub data: *const c_void,
    /// In version 2, a list of the linked fat binaries that ends with a null.
    pub linked: *const c_void,
}

pub const FATBIN_WRAPPER_MAGIC: c_uint = 0x4662_43b1;

/// `cudaInvalidDeviceId`: the device of memory that belongs to no device.
pub const INVALID_DEVICE: c_int = -2;

/// A C string that the program owns.
pub type Text = *const c_char;
