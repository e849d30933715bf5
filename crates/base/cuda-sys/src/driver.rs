//! The driver interface (libcuda): handles, structures, flags.
//!
//! Names and numbers are those of the interface's documentation.
#![allow(non_camel_case_types, non_snake_case, reason = "names of a C interface, documented there")]

mod attributes;
mod codes;
mod define;
mod functions;
mod graphs;

pub use attributes::*;
pub use codes::*;
pub use define::{Function, c_name};
pub use functions::{FUNCTIONS, function};
pub use graphs::*;

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Version of the served interface, 13.0, as `cuDriverGetVersion` reports it.
pub const DRIVER_VERSION: c_int = 13_000;

pub type CUdevice = c_int;
pub type CUdeviceptr = u64;

macro_rules! handles {
    ($($name:ident -> $pointee:ident),* $(,)?) => {$(
        #[derive(Debug)]
        pub enum $pointee {}
        pub type $name = *mut $pointee;
    )*};
}
handles! {
    CUcontext -> CUctx_st, CUstream -> CUstream_st, CUevent -> CUevent_st, CUmodule -> CUmod_st, CUfunction -> CUfunc_st,
    CUlibrary -> CUlib_st, CUkernel -> CUkern_st, CUlinkState -> CUlinkState_st, CUarray -> CUarray_st,
    CUmipmappedArray -> CUmipmappedArray_st, CUmemoryPool -> CUmemPoolHandle_st, CUtexref -> CUtexref_st, CUgraph -> CUgraph_st,
    CUgraphNode -> CUgraphNode_st, CUgraphExec -> CUgraphExec_st, CUuserObject -> CUuserObject_st,
    CUgreenCtx -> CUgreenCtx_st,
}

/// Structures of which Penstock only passes pointers on.
#[derive(Debug)]
pub enum CUexecAffinityParam {}

/// A location and flags.
pub type CUmemAccessDesc = [u32; 3];
/// Affinities, their number, and the parameters of a context for graphics.
pub type CUctxCreateParams = [u64; 3];
pub type CUlaunchAttributeValue = [u32; 16];

pub type CUtexObject = u64;
pub type CUsurfObject = u64;

/// Stream handle that means the legacy default stream.
pub const CU_STREAM_LEGACY: usize = 1;
/// Stream handle that means the calling thread's default stream.
pub const CU_STREAM_PER_THREAD: usize = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;

pub const CU_STREAM_DEFAULT: c_uint = 0;
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;

pub const CU_EVENT_BLOCKING_SYNC: c_uint = 1;
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
pub const CU_EVENT_INTERPROCESS: c_uint = 4;

pub const CU_CTX_SCHED_MASK: c_uint = 7;
pub const CU_CTX_MAP_HOST: c_uint = 8;
pub const CU_CTX_FLAGS_MASK: c_uint = 0xff;

pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
pub const CU_MEMHOSTALLOC_WRITECOMBINED: c_uint = 4;
pub const CU_MEMHOSTREGISTER_READ_ONLY: c_uint = 8;

pub const CU_MEM_ATTACH_GLOBAL: c_uint = 1;
pub const CU_MEM_ATTACH_HOST: c_uint = 2;
pub const CU_MEM_ATTACH_SINGLE: c_uint = 4;

/// In place of a device's number: the host.
pub const CU_DEVICE_CPU: CUdevice = -1;
/// In place of a device's number: none.
pub const CU_DEVICE_INVALID: CUdevice = -2;

/// A place where memory can be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemLocation {
    /// `CU_MEM_LOCATION_TYPE_...`
    pub kind: c_uint,
    /// Number of the device or NUMA node, if the kind has one.
    pub id: c_int,
}

pub const CU_MEM_LOCATION_TYPE_INVALID: c_uint = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: c_uint = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: c_uint = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: c_uint = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: c_uint = 4;

pub const CU_MEM_ADVISE_SET_READ_MOSTLY: c_uint = 1;
pub const CU_MEM_ADVISE_UNSET_READ_MOSTLY: c_uint = 2;
pub const CU_MEM_ADVISE_SET_PREFERRED_LOCATION: c_uint = 3;
pub const CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: c_uint = 4;
pub const CU_MEM_ADVISE_SET_ACCESSED_BY: c_uint = 5;
pub const CU_MEM_ADVISE_UNSET_ACCESSED_BY: c_uint = 6;

pub const CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: c_uint = 1;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: c_uint = 2;
pub const CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: c_uint = 3;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: c_uint = 4;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: c_uint = 5;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: c_uint = 6;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: c_uint = 7;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: c_uint = 8;

pub const CU_MEMORYTYPE_HOST: c_uint = 1;
pub const CU_MEMORYTYPE_DEVICE: c_uint = 2;
pub const CU_MEMORYTYPE_ARRAY: c_uint = 3;
pub const CU_MEMORYTYPE_UNIFIED: c_uint = 4;

pub const CU_AD_FORMAT_UNSIGNED_INT8: c_uint = 0x01;
pub const CU_AD_FORMAT_UNSIGNED_INT16: c_uint = 0x02;
pub const CU_AD_FORMAT_UNSIGNED_INT32: c_uint = 0x03;
pub const CU_AD_FORMAT_SIGNED_INT8: c_uint = 0x08;
pub const CU_AD_FORMAT_SIGNED_INT16: c_uint = 0x09;
pub const CU_AD_FORMAT_SIGNED_INT32: c_uint = 0x0a;
pub const CU_AD_FORMAT_HALF: c_uint = 0x10;
pub const CU_AD_FORMAT_FLOAT: c_uint = 0x20;

pub const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
pub const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
pub const CU_TRSF_SRGB: c_uint = 0x10;

pub const CU_RESOURCE_TYPE_ARRAY: c_uint = 0;
pub const CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: c_uint = 1;
pub const CU_RESOURCE_TYPE_LINEAR: c_uint = 2;
pub const CU_RESOURCE_TYPE_PITCH2D: c_uint = 3;

pub const CUDA_ARRAY3D_LAYERED: c_uint = 1;
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 2;
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 4;
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 8;

pub const CU_JIT_THREADS_PER_BLOCK: c_uint = 1;
pub const CU_JIT_WALL_TIME: c_uint = 2;
pub const CU_JIT_INFO_LOG_BUFFER: c_uint = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: c_uint = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: c_uint = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
pub const CU_JIT_TARGET_FROM_CUCONTEXT: c_uint = 8;
pub const CU_JIT_TARGET: c_uint = 9;
pub const CU_JIT_FALLBACK_STRATEGY: c_uint = 10;
pub const CU_JIT_GLOBAL_SYMBOL_NAMES: c_uint = 17;
pub const CU_JIT_GLOBAL_SYMBOL_COUNT: c_uint = 19;
/// Larger than any option of CUDA 12 and 13.
pub const CU_JIT_NUM_OPTIONS: c_uint = 36;

pub const CU_JIT_INPUT_CUBIN: c_uint = 0;
pub const CU_JIT_INPUT_PTX: c_uint = 1;
pub const CU_JIT_INPUT_FATBINARY: c_uint = 2;
pub const CU_JIT_INPUT_OBJECT: c_uint = 3;
pub const CU_JIT_INPUT_LIBRARY: c_uint = 4;
pub const CU_JIT_INPUT_NVVM: c_uint = 5;

pub const CU_GET_PROC_ADDRESS_LEGACY_STREAM: u64 = 1;
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: u64 = 2;
pub const CU_GET_PROC_ADDRESS_SUCCESS: c_uint = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: c_uint = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: c_uint = 2;

pub const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: c_uint = 2;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_uint = 4;

/// Ends the `extra` list of a launch.
pub const CU_LAUNCH_PARAM_END: usize = 0;
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Format: c_uint,
    pub NumChannels: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: c_uint,
    pub NumChannels: c_uint,
    pub Flags: c_uint,
}

/// Members `res.linear` and `res.pitch2D` of a resource. `res.array` only has `handle`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_RESOURCE {
    pub handle: u64,
    pub format: c_uint,
    pub numChannels: c_uint,
    /// `sizeInBytes` of linear memory, or `width` of memory with a pitch.
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
    pub reserved: [u64; 11],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_RESOURCE_DESC {
    pub resType: c_uint,
    pub res: CUDA_RESOURCE,
    pub flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_RESOURCE_VIEW_DESC {
    pub format: c_uint,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: c_uint,
    pub lastMipmapLevel: c_uint,
    pub firstLayer: c_uint,
    pub lastLayer: c_uint,
    pub reserved: [c_uint; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [c_uint; 3],
    pub filterMode: c_uint,
    pub flags: c_uint,
    pub maxAnisotropy: c_uint,
    pub mipmapFilterMode: c_uint,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [c_int; 12],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchAttribute {
    pub id: c_uint,
    pub pad: [c_char; 4],
    pub value: CUlaunchAttributeValue,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchConfig {
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: c_uint,
}

/// `CUDA_LAUNCH_PARAMS_v1`: one of several kernels that are launched together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_LAUNCH_PARAMS {
    pub function: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    pub kernelParams: *mut *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUdevprop {
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub sharedMemPerBlock: c_int,
    pub totalConstantMemory: c_int,
    pub SIMDWidth: c_int,
    pub memPitch: c_int,
    pub regsPerBlock: c_int,
    pub clockRate: c_int,
    pub textureAlign: c_int,
}

// Sizes as C compilers for 64-bit systems lay the structures out.
const _: () = assert!(size_of::<CUDA_MEMCPY2D>() == 128);
const _: () = assert!(size_of::<CUDA_MEMCPY3D>() == 200);
const _: () = assert!(size_of::<CUDA_RESOURCE_DESC>() == 144);
const _: () = assert!(size_of::<CUDA_TEXTURE_DESC>() == 104);
const _: () = assert!(size_of::<CUDA_RESOURCE_VIEW_DESC>() == 112);
const _: () = assert!(size_of::<CUlaunchConfig>() == 56);
const _: () = assert!(size_of::<CUlaunchAttribute>() == 72);
const _: () = assert!(size_of::<CUDA_LAUNCH_PARAMS>() == 56);
const _: () = assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR>() == 40);
