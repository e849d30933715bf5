//! Graphs: handles, kinds of nodes, and parameters of nodes.

use std::ffi::{c_int, c_uint, c_void};

use super::*;

/// Values of CUDA's `CUstreamCaptureMode`.
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: c_uint = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_uint = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: c_uint = 2;

/// Values of CUDA's `CUstreamCaptureStatus`.
pub const CU_STREAM_CAPTURE_STATUS_NONE: c_uint = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: c_uint = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: c_uint = 2;

/// Values of CUDA's `CUstreamUpdateCaptureDependencies_flags`.
pub const CU_STREAM_ADD_CAPTURE_DEPENDENCIES: c_uint = 0;
pub const CU_STREAM_SET_CAPTURE_DEPENDENCIES: c_uint = 1;

/// The record becomes a node, for streams and graphs outside the captured one.
pub const CU_EVENT_RECORD_EXTERNAL: c_uint = 1;
/// The wait becomes a node, for an event that is recorded outside the graph.
pub const CU_EVENT_WAIT_EXTERNAL: c_uint = 1;

/// Values of CUDA's `CUgraphNodeType`.
pub const CU_GRAPH_NODE_TYPE_KERNEL: c_uint = 0;
pub const CU_GRAPH_NODE_TYPE_MEMCPY: c_uint = 1;
pub const CU_GRAPH_NODE_TYPE_MEMSET: c_uint = 2;
pub const CU_GRAPH_NODE_TYPE_HOST: c_uint = 3;
pub const CU_GRAPH_NODE_TYPE_GRAPH: c_uint = 4;
pub const CU_GRAPH_NODE_TYPE_EMPTY: c_uint = 5;
pub const CU_GRAPH_NODE_TYPE_WAIT_EVENT: c_uint = 6;
pub const CU_GRAPH_NODE_TYPE_EVENT_RECORD: c_uint = 7;
pub const CU_GRAPH_NODE_TYPE_MEM_ALLOC: c_uint = 10;
pub const CU_GRAPH_NODE_TYPE_MEM_FREE: c_uint = 11;
pub const CU_GRAPH_NODE_TYPE_CONDITIONAL: c_uint = 13;

/// Values of CUDA's `CUgraphInstantiate_flags`.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: u64 = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: u64 = 2;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: u64 = 4;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: u64 = 8;

/// Values of CUDA's `CUgraphInstantiateResult`.
pub const CUDA_GRAPH_INSTANTIATE_SUCCESS: c_uint = 0;
pub const CUDA_GRAPH_INSTANTIATE_ERROR: c_uint = 1;
pub const CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE: c_uint = 2;

/// Values of CUDA's `CUgraphExecUpdateResult`.
pub const CU_GRAPH_EXEC_UPDATE_SUCCESS: c_uint = 0;
pub const CU_GRAPH_EXEC_UPDATE_ERROR: c_uint = 1;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: c_uint = 2;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED: c_uint = 3;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED: c_uint = 5;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED: c_uint = 6;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE: c_uint = 7;

/// Values of CUDA's `CUgraphMem_attribute`.
pub const CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: c_uint = 0;
pub const CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: c_uint = 1;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: c_uint = 2;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: c_uint = 3;

/// `CUgraphDebugDot_flags`: prints all details.
pub const CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE: c_uint = 1;

/// Flags of `cuUserObjectCreate` and `cuGraphRetainUserObject`.
pub const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: c_uint = 1;
pub const CU_GRAPH_USER_OBJECT_MOVE: c_uint = 1;

/// A dependency on the completion of the whole node.
pub const CU_GRAPH_DEPENDENCY_TYPE_DEFAULT: u8 = 0;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUgraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub first: CUDA_KERNEL_NODE_PARAMS_v1,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub elementSize: c_uint,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub function: CUhostFn,
    pub userData: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: c_int,
    pub reserved: c_int,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
    pub graph: CUgraph,
    pub ownership: c_int,
}

/// `CUmemPoolProps`: properties of a memory pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemPoolProps {
    pub allocType: c_uint,
    pub handleTypes: c_uint,
    pub locationType: c_uint,
    pub locationId: c_int,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub poolProps: CUmemPoolProps,
    /// For each device: type of location, location, access flags.
    pub accessDescs: *const [c_uint; 3],
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

/// `CUgraphNodeParams`. `kind` says which of the structures above `params` holds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUgraphNodeParams {
    pub kind: c_uint,
    pub reserved0: [c_int; 3],
    pub params: [u64; 29],
    pub reserved2: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: c_uint,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

// Sizes as C compilers for 64-bit systems lay the structures out.
const _: () = assert!(size_of::<CUgraphEdgeData>() == 8);
const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);
const _: () = assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
const _: () = assert!(size_of::<CUDA_MEMCPY_NODE_PARAMS>() == 216);
const _: () = assert!(size_of::<CUmemPoolProps>() == 88);
const _: () = assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);
const _: () = assert!(size_of::<CUgraphNodeParams>() == 256);
const _: () = assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
const _: () = assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
