//! The table of the driver's functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicBool;

use penstock_cuda_sys::driver::*;

use super::LACKING;
use super::library::Library;
use crate::edge::unserved::say_once;
use crate::edge::{RtError, RtResult};

/// Defines the table, and for each function a method that returns a [`RtResult`].
///
/// The name in quotes is the symbol of the version with 64-bit sizes and addresses.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($parameter:ident: $type:ty),* $(,)?);)*) => {
        /// The driver's functions that the runtime uses. One that the driver lacks is `None`.
        #[allow(non_snake_case, reason = "C's names")]
        #[derive(Debug)]
        pub(crate) struct Functions {
            $($name: Option<unsafe extern "C" fn($($type),*) -> CUresult>,)*
        }

        impl Functions {
            /// Looks up all functions.
            pub(super) fn of(library: Library) -> Self {
                Self {$(
                    $name: library.symbol(symbol(concat!($symbol, "\0"))).map(|address| {
                        // SAFETY: the function of this name has this signature.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> CUresult>(address)
                        }
                    }),
                )*}
            }

            $(
                /// # Safety
                /// Arguments are as the driver's function of this name requires.
                #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
                #[inline]
                pub(crate) unsafe fn $name(&self $(, $parameter: $type)*) -> RtResult {
                    static SAID: AtomicBool = AtomicBool::new(false);
                    let told = RtError::from_driver(match self.$name {
                        // SAFETY: the caller upholds the contract of this function.
                        Some(function) => unsafe { function($($parameter),*) },
                        None => {
                            say_once(&SAID, concat!($symbol, ", which the driver lacks,"));
                            LACKING
                        }
                    });
                    if told.is_err_and(RtError::is_sticky) {
                        self.keep(told);
                    }
                    told
                }
            )*
        }
    };
}

impl Functions {
    /// Keeps an error for the current context, in which it occurred.
    #[cold]
    fn keep(&self, told: RtResult) {
        let mut context: CUcontext = std::ptr::null_mut();
        if let (Err(error), Some(ask)) = (told, self.cuCtxGetCurrent) {
            // SAFETY: the pointer is valid for a write of the answer.
            _ = unsafe { ask(&raw mut context) };
            if !context.is_null() {
                error.keep_for(context.addr());
            }
        }
    }
}

/// Converts a name of the table to a C string.
const fn symbol(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name of the table does not end with a null"),
    }
}

type Out<T> = *mut T;

functions! {
    cuInit = "cuInit" (flags: c_uint);
    cuDriverGetVersion = "cuDriverGetVersion" (version: Out<c_int>);
    cuGetProcAddress = "cuGetProcAddress_v2" (
        name: *const c_char, function: Out<*mut c_void>, version: c_int, flags: u64, status: Out<c_uint>,
    );

    cuDeviceGetCount = "cuDeviceGetCount" (count: Out<c_int>);
    cuDeviceGet = "cuDeviceGet" (device: Out<CUdevice>, ordinal: c_int);
    cuDeviceGetName = "cuDeviceGetName" (name: Out<c_char>, length: c_int, device: CUdevice);
    cuDeviceGetUuid = "cuDeviceGetUuid_v2" (uuid: Out<[u8; 16]>, device: CUdevice);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2" (bytes: Out<usize>, device: CUdevice);
    cuDeviceGetAttribute = "cuDeviceGetAttribute" (value: Out<c_int>, attribute: c_uint, device: CUdevice);
    cuDeviceGetByPCIBusId = "cuDeviceGetByPCIBusId" (device: Out<CUdevice>, id: *const c_char);
    cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId" (id: Out<c_char>, length: c_int, device: CUdevice);
    cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer" (can: Out<c_int>, device: CUdevice, peer: CUdevice);
    cuDeviceGetP2PAttribute = "cuDeviceGetP2PAttribute" (
        value: Out<c_int>, attribute: c_uint, source: CUdevice, destination: CUdevice,
    );
    cuDeviceGetTexture1DLinearMaxWidth = "cuDeviceGetTexture1DLinearMaxWidth" (
        width: Out<usize>, format: c_uint, channels: c_uint, device: CUdevice,
    );
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" (context: Out<CUcontext>, device: CUdevice);
    cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2" (device: CUdevice);
    cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset_v2" (device: CUdevice);
    cuDevicePrimaryCtxSetFlags = "cuDevicePrimaryCtxSetFlags_v2" (device: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxGetState = "cuDevicePrimaryCtxGetState" (
        device: CUdevice, flags: Out<c_uint>, active: Out<c_int>,
    );

    cuCtxGetCurrent = "cuCtxGetCurrent" (context: Out<CUcontext>);
    cuCtxSetCurrent = "cuCtxSetCurrent" (context: CUcontext);
    cuCtxGetDevice = "cuCtxGetDevice" (device: Out<CUdevice>);
    cuCtxSynchronize = "cuCtxSynchronize" ();
    cuCtxGetLimit = "cuCtxGetLimit" (value: Out<usize>, limit: c_uint);
    cuCtxSetLimit = "cuCtxSetLimit" (limit: c_uint, value: usize);
    cuCtxGetCacheConfig = "cuCtxGetCacheConfig" (config: Out<c_uint>);
    cuCtxSetCacheConfig = "cuCtxSetCacheConfig" (config: c_uint);
    cuCtxGetStreamPriorityRange = "cuCtxGetStreamPriorityRange" (least: Out<c_int>, greatest: Out<c_int>);
    cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" (peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess = "cuCtxDisablePeerAccess" (peer: CUcontext);

    cuModuleLoadDataEx = "cuModuleLoadDataEx" (
        module: Out<CUmodule>, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    cuLinkCreate = "cuLinkCreate_v2" (
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: Out<CUlinkState>,
    );
    cuLinkAddData = "cuLinkAddData_v2" (
        state: CUlinkState, kind: c_uint, data: *const c_void, bytes: usize, name: *const c_char, count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void,
    );
    cuLinkComplete = "cuLinkComplete" (state: CUlinkState, image: Out<*const c_void>, bytes: Out<usize>);
    cuLinkDestroy = "cuLinkDestroy" (state: CUlinkState);
    cuModuleUnload = "cuModuleUnload" (module: CUmodule);
    cuModuleGetFunction = "cuModuleGetFunction" (function: Out<CUfunction>, module: CUmodule, name: *const c_char);
    cuModuleGetGlobal = "cuModuleGetGlobal_v2" (
        pointer: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: *const c_char,
    );
    cuFuncGetAttribute = "cuFuncGetAttribute" (value: Out<c_int>, attribute: c_uint, function: CUfunction);
    cuFuncSetAttribute = "cuFuncSetAttribute" (function: CUfunction, attribute: c_uint, value: c_int);
    cuFuncSetCacheConfig = "cuFuncSetCacheConfig" (function: CUfunction, config: c_uint);
    cuFuncGetParamInfo = "cuFuncGetParamInfo" (
        function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>,
    );
    cuLibraryLoadData = "cuLibraryLoadData" (
        library: Out<CUlibrary>, code: *const c_void, jit: *mut c_uint, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    );
    cuLibraryLoadFromFile = "cuLibraryLoadFromFile" (
        library: Out<CUlibrary>, file: *const c_char, jit: *mut c_uint, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    );
    cuLibraryUnload = "cuLibraryUnload" (library: CUlibrary);
    cuLibraryGetKernel = "cuLibraryGetKernel" (kernel: Out<CUkernel>, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount = "cuLibraryGetKernelCount" (count: Out<c_uint>, library: CUlibrary);
    cuLibraryEnumerateKernels = "cuLibraryEnumerateKernels" (
        kernels: Out<CUkernel>, count: c_uint, library: CUlibrary,
    );
    cuLibraryGetGlobal = "cuLibraryGetGlobal" (
        pointer: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: *const c_char,
    );

    cuLaunchKernel = "cuLaunchKernel" (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel" (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void,
    );
    cuLaunchKernelEx = "cuLaunchKernelEx" (
        config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchHostFunc = "cuLaunchHostFunc" (stream: CUstream, function: CUhostFn, data: *mut c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" (
        blocks: Out<c_int>, function: CUfunction, block: c_int, dynamic_bytes: usize, flags: c_uint,
    );
    cuOccupancyAvailableDynamicSMemPerBlock = "cuOccupancyAvailableDynamicSMemPerBlock" (
        bytes: Out<usize>, function: CUfunction, blocks: c_int, block: c_int,
    );

    cuMemGetInfo = "cuMemGetInfo_v2" (free: Out<usize>, total: Out<usize>);
    cuMemAlloc = "cuMemAlloc_v2" (pointer: Out<CUdeviceptr>, bytes: usize);
    cuMemAllocPitch = "cuMemAllocPitch_v2" (
        pointer: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    );
    cuMemAllocManaged = "cuMemAllocManaged" (pointer: Out<CUdeviceptr>, bytes: usize, flags: c_uint);
    cuMemAllocAsync = "cuMemAllocAsync" (pointer: Out<CUdeviceptr>, bytes: usize, stream: CUstream);
    cuMemFreeAsync = "cuMemFreeAsync" (pointer: CUdeviceptr, stream: CUstream);
    cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" (
        pointer: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream,
    );
    cuDeviceGetDefaultMemPool = "cuDeviceGetDefaultMemPool" (pool: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceGetMemPool = "cuDeviceGetMemPool" (pool: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceSetMemPool = "cuDeviceSetMemPool" (device: CUdevice, pool: CUmemoryPool);
    cuMemPoolCreate = "cuMemPoolCreate" (pool: Out<CUmemoryPool>, properties: *const c_void);
    cuMemPoolDestroy = "cuMemPoolDestroy" (pool: CUmemoryPool);
    cuMemPoolTrimTo = "cuMemPoolTrimTo" (pool: CUmemoryPool, bytes_kept: usize);
    cuMemPoolGetAttribute = "cuMemPoolGetAttribute" (pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAttribute = "cuMemPoolSetAttribute" (pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolGetAccess = "cuMemPoolGetAccess" (flags: Out<c_uint>, pool: CUmemoryPool, location: *mut c_void);
    cuMemPoolSetAccess = "cuMemPoolSetAccess" (pool: CUmemoryPool, list: *const c_void, count: usize);
    cuMemFree = "cuMemFree_v2" (pointer: CUdeviceptr);
    cuMemHostAlloc = "cuMemHostAlloc" (pointer: Out<*mut c_void>, bytes: usize, flags: c_uint);
    cuMemFreeHost = "cuMemFreeHost" (pointer: *mut c_void);
    cuMemHostRegister = "cuMemHostRegister_v2" (pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister = "cuMemHostUnregister" (pointer: *mut c_void);
    cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2" (
        device: Out<CUdeviceptr>, pointer: *mut c_void, flags: c_uint,
    );
    cuMemHostGetFlags = "cuMemHostGetFlags" (flags: Out<c_uint>, pointer: *mut c_void);
    cuPointerGetAttribute = "cuPointerGetAttribute" (data: *mut c_void, attribute: c_uint, pointer: CUdeviceptr);

    cuMemcpyHtoD = "cuMemcpyHtoD_v2" (destination: CUdeviceptr, source: *const c_void, bytes: usize);
    cuMemcpyDtoH = "cuMemcpyDtoH_v2" (destination: *mut c_void, source: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD = "cuMemcpyDtoD_v2" (destination: CUdeviceptr, source: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2" (
        destination: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream,
    );
    cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2" (
        destination: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2" (
        destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    cuMemcpyAsync = "cuMemcpyAsync" (
        destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    cuMemcpy2DUnaligned = "cuMemcpy2DUnaligned_v2" (copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DAsync = "cuMemcpy2DAsync_v2" (copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3D = "cuMemcpy3D_v2" (copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DAsync = "cuMemcpy3DAsync_v2" (copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuMemcpyPeer = "cuMemcpyPeer" (
        destination: CUdeviceptr, destination_context: CUcontext, source: CUdeviceptr, source_context: CUcontext,
        bytes: usize,
    );
    cuMemcpyPeerAsync = "cuMemcpyPeerAsync" (
        destination: CUdeviceptr, destination_context: CUcontext, source: CUdeviceptr, source_context: CUcontext,
        bytes: usize, stream: CUstream,
    );
    cuMemsetD8 = "cuMemsetD8_v2" (destination: CUdeviceptr, value: u8, bytes: usize);
    cuMemsetD8Async = "cuMemsetD8Async" (destination: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
    cuMemsetD2D8 = "cuMemsetD2D8_v2" (
        destination: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
    );
    cuMemsetD2D8Async = "cuMemsetD2D8Async" (
        destination: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    );

    cuArrayCreate = "cuArrayCreate_v2" (array: Out<CUarray>, descriptor: *const CUDA_ARRAY_DESCRIPTOR);
    cuArray3DCreate = "cuArray3DCreate_v2" (array: Out<CUarray>, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArray3DGetDescriptor = "cuArray3DGetDescriptor_v2" (descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray);
    cuArrayDestroy = "cuArrayDestroy" (array: CUarray);
    cuTexObjectCreate = "cuTexObjectCreate" (
        object: Out<u64>, resource: *const CUDA_RESOURCE_DESC, texture: *const CUDA_TEXTURE_DESC, view: *const c_void,
    );
    cuTexObjectDestroy = "cuTexObjectDestroy" (object: u64);
    cuSurfObjectCreate = "cuSurfObjectCreate" (object: Out<u64>, resource: *const CUDA_RESOURCE_DESC);
    cuSurfObjectDestroy = "cuSurfObjectDestroy" (object: u64);

    cuStreamCreate = "cuStreamCreate" (stream: Out<CUstream>, flags: c_uint);
    cuStreamCreateWithPriority = "cuStreamCreateWithPriority" (stream: Out<CUstream>, flags: c_uint, priority: c_int);
    cuStreamDestroy = "cuStreamDestroy_v2" (stream: CUstream);
    cuStreamSynchronize = "cuStreamSynchronize" (stream: CUstream);
    cuStreamQuery = "cuStreamQuery" (stream: CUstream);
    cuStreamWaitEvent = "cuStreamWaitEvent" (stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamAddCallback = "cuStreamAddCallback" (
        stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint,
    );
    cuStreamGetFlags = "cuStreamGetFlags" (stream: CUstream, flags: Out<c_uint>);
    cuStreamGetPriority = "cuStreamGetPriority" (stream: CUstream, priority: Out<c_int>);
    cuStreamGetCtx = "cuStreamGetCtx" (stream: CUstream, context: Out<CUcontext>);
    cuStreamGetId = "cuStreamGetId" (stream: CUstream, id: Out<u64>);

    cuEventCreate = "cuEventCreate" (event: Out<CUevent>, flags: c_uint);
    cuEventDestroy = "cuEventDestroy_v2" (event: CUevent);
    cuEventRecord = "cuEventRecord" (event: CUevent, stream: CUstream);
    cuEventRecordWithFlags = "cuEventRecordWithFlags" (event: CUevent, stream: CUstream, flags: c_uint);
    cuEventSynchronize = "cuEventSynchronize" (event: CUevent);
    cuEventQuery = "cuEventQuery" (event: CUevent);
    cuEventElapsedTime = "cuEventElapsedTime" (milliseconds: Out<f32>, start: CUevent, end: CUevent);

    cuStreamBeginCapture = "cuStreamBeginCapture_v2" (stream: CUstream, mode: c_uint);
    cuStreamBeginCaptureToGraph = "cuStreamBeginCaptureToGraph" (
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        mode: c_uint,
    );
    cuStreamEndCapture = "cuStreamEndCapture" (stream: CUstream, graph: Out<CUgraph>);
    cuStreamIsCapturing = "cuStreamIsCapturing" (stream: CUstream, status: Out<c_uint>);
    cuStreamGetCaptureInfo = "cuStreamGetCaptureInfo_v3" (
        stream: CUstream, status: Out<c_uint>, id: Out<u64>, graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>, edges: Out<*const CUgraphEdgeData>, count: Out<usize>,
    );
    cuStreamUpdateCaptureDependencies = "cuStreamUpdateCaptureDependencies_v2" (
        stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: c_uint,
    );
    cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode" (mode: Out<c_uint>);
    cuGraphCreate = "cuGraphCreate" (graph: *mut CUgraph, flags: c_uint);
    cuGraphDestroy = "cuGraphDestroy" (graph: CUgraph);
    cuGraphClone = "cuGraphClone" (copy: *mut CUgraph, graph: CUgraph);
    cuGraphNodeFindInClone = "cuGraphNodeFindInClone" (found: *mut CUgraphNode, node: CUgraphNode, copy: CUgraph);
    cuGraphDestroyNode = "cuGraphDestroyNode" (node: CUgraphNode);
    cuGraphNodeGetType = "cuGraphNodeGetType" (node: CUgraphNode, kind: *mut c_uint);
    cuGraphGetNodes = "cuGraphGetNodes" (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetRootNodes = "cuGraphGetRootNodes" (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges = "cuGraphGetEdges_v2" (
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut
        usize,
    );
    cuGraphNodeGetDependencies = "cuGraphNodeGetDependencies_v2" (
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    cuGraphNodeGetDependentNodes = "cuGraphNodeGetDependentNodes_v2" (
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    cuGraphAddDependencies = "cuGraphAddDependencies_v2" (
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData,
        count: usize,
    );
    cuGraphRemoveDependencies = "cuGraphRemoveDependencies_v2" (
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData,
        count: usize,
    );
    cuGraphDebugDotPrint = "cuGraphDebugDotPrint" (graph: CUgraph, path: *const c_char, flags: c_uint);
    cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" (exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphExecGetFlags = "cuGraphExecGetFlags" (exec: CUgraphExec, flags: *mut u64);
    cuGraphExecDestroy = "cuGraphExecDestroy" (exec: CUgraphExec);
    cuGraphExecUpdate = "cuGraphExecUpdate_v2" (
        exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo,
    );
    cuGraphNodeSetEnabled = "cuGraphNodeSetEnabled" (exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
    cuGraphNodeGetEnabled = "cuGraphNodeGetEnabled" (exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
    cuUserObjectCreate = "cuUserObjectCreate" (
        object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint,
    );
    cuUserObjectRetain = "cuUserObjectRetain" (object: CUuserObject, count: c_uint);
    cuUserObjectRelease = "cuUserObjectRelease" (object: CUuserObject, count: c_uint);
    cuGraphRetainUserObject = "cuGraphRetainUserObject" (
        graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint,
    );
    cuGraphReleaseUserObject = "cuGraphReleaseUserObject" (graph: CUgraph, object: CUuserObject, count: c_uint);
    cuGraphMemsetNodeGetParams = "cuGraphMemsetNodeGetParams" (
        node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS,
    );
    cuGraphMemsetNodeSetParams = "cuGraphMemsetNodeSetParams" (
        node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS,
    );
    cuGraphAddHostNode = "cuGraphAddHostNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *const
        CUDA_HOST_NODE_PARAMS,
    );
    cuGraphHostNodeGetParams = "cuGraphHostNodeGetParams" (node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS);
    cuGraphHostNodeSetParams = "cuGraphHostNodeSetParams" (node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
    cuGraphExecHostNodeSetParams = "cuGraphExecHostNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS,
    );
    cuGraphAddChildGraphNode = "cuGraphAddChildGraphNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, child: CUgraph,
    );
    cuGraphChildGraphNodeGetGraph = "cuGraphChildGraphNodeGetGraph" (node: CUgraphNode, graph: *mut CUgraph);
    cuGraphExecChildGraphNodeSetParams = "cuGraphExecChildGraphNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, child: CUgraph,
    );
    cuGraphAddEmptyNode = "cuGraphAddEmptyNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize,
    );
    cuGraphAddEventRecordNode = "cuGraphAddEventRecordNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, event: CUevent,
    );
    cuGraphEventRecordNodeGetEvent = "cuGraphEventRecordNodeGetEvent" (node: CUgraphNode, event: *mut CUevent);
    cuGraphEventRecordNodeSetEvent = "cuGraphEventRecordNodeSetEvent" (node: CUgraphNode, event: CUevent);
    cuGraphExecEventRecordNodeSetEvent = "cuGraphExecEventRecordNodeSetEvent" (
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    );
    cuGraphAddEventWaitNode = "cuGraphAddEventWaitNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, event: CUevent,
    );
    cuGraphEventWaitNodeGetEvent = "cuGraphEventWaitNodeGetEvent" (node: CUgraphNode, event: *mut CUevent);
    cuGraphEventWaitNodeSetEvent = "cuGraphEventWaitNodeSetEvent" (node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent = "cuGraphExecEventWaitNodeSetEvent" (
        exec: CUgraphExec, node: CUgraphNode, event: CUevent,
    );
    cuGraphAddMemAllocNode = "cuGraphAddMemAllocNode" (
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *mut
        CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    cuGraphMemAllocNodeGetParams = "cuGraphMemAllocNodeGetParams" (
        node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    cuGraphKernelNodeSetAttribute = "cuGraphKernelNodeSetAttribute" (
        node: CUgraphNode, attribute: c_uint, value: *const c_void,
    );
    cuGraphKernelNodeGetAttribute = "cuGraphKernelNodeGetAttribute" (
        node: CUgraphNode, attribute: c_uint, value: *mut c_void,
    );
    cuGraphKernelNodeCopyAttributes = "cuGraphKernelNodeCopyAttributes" (to: CUgraphNode, from: CUgraphNode);
    cuGraphInstantiateWithParams = "cuGraphInstantiateWithParams" (
        exec: Out<CUgraphExec>, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    );
    cuDeviceGraphMemTrim = "cuDeviceGraphMemTrim" (device: CUdevice);
    cuDeviceGetGraphMemAttribute = "cuDeviceGetGraphMemAttribute" (
        device: CUdevice, attribute: c_uint, value: *mut c_void,
    );
    cuDeviceSetGraphMemAttribute = "cuDeviceSetGraphMemAttribute" (
        device: CUdevice, attribute: c_uint, value: *mut c_void,
    );
    cuGraphLaunch = "cuGraphLaunch" (exec: CUgraphExec, stream: CUstream);
    cuGraphUpload = "cuGraphUpload" (exec: CUgraphExec, stream: CUstream);
    cuGraphAddKernelNode = "cuGraphAddKernelNode" (
        node: Out<CUgraphNode>, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *const
        CUDA_KERNEL_NODE_PARAMS_v1,
    );
    cuGraphKernelNodeGetParams = "cuGraphKernelNodeGetParams" (
        node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>,
    );
    cuGraphKernelNodeSetParams = "cuGraphKernelNodeSetParams" (
        node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    );
    cuGraphExecKernelNodeSetParams = "cuGraphExecKernelNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    );
    cuGraphAddMemcpyNode = "cuGraphAddMemcpyNode" (
        node: Out<CUgraphNode>, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *const
        CUDA_MEMCPY3D, context: CUcontext,
    );
    cuGraphMemcpyNodeGetParams = "cuGraphMemcpyNodeGetParams" (node: CUgraphNode, params: Out<CUDA_MEMCPY3D>);
    cuGraphMemcpyNodeSetParams = "cuGraphMemcpyNodeSetParams" (node: CUgraphNode, params: *const CUDA_MEMCPY3D);
    cuGraphExecMemcpyNodeSetParams = "cuGraphExecMemcpyNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, context: CUcontext,
    );
    cuGraphAddMemsetNode = "cuGraphAddMemsetNode" (
        node: Out<CUgraphNode>, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *const
        CUDA_MEMSET_NODE_PARAMS, context: CUcontext,
    );
    cuGraphExecMemsetNodeSetParams = "cuGraphExecMemsetNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext,
    );
    cuGraphAddMemFreeNode = "cuGraphAddMemFreeNode" (
        node: Out<CUgraphNode>, graph: CUgraph, before: *const CUgraphNode, count: usize, memory: CUdeviceptr,
    );
    cuGraphMemFreeNodeGetParams = "cuGraphMemFreeNodeGetParams" (node: CUgraphNode, memory: Out<CUdeviceptr>);
    cuGraphAddNode = "cuGraphAddNode_v2" (
        node: Out<CUgraphNode>, graph: CUgraph, before: *const CUgraphNode, edges: *const CUgraphEdgeData,
        count: usize, params: *mut CUgraphNodeParams,
    );
    cuGraphNodeSetParams = "cuGraphNodeSetParams" (node: CUgraphNode, params: *mut CUgraphNodeParams);
    cuGraphExecNodeSetParams = "cuGraphExecNodeSetParams" (
        exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams,
    );
}

impl Functions {
    /// Whether the driver can allocate and free memory in the order of a stream.
    pub(crate) fn has_stream_order(&self) -> bool {
        self.cuMemAllocAsync.is_some() && self.cuMemFreeAsync.is_some()
    }
}
