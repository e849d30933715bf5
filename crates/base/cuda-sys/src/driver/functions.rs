//! The functions of the driver interface, in the only list of their types.
//!
//! [`function`] has the type of each function, [`crate::driver_table`] makes a struct of functions
//! that are looked up in a library, and [`crate::driver_parameters`] repeats the parameters of one
//! function. `tests/signatures.rs` compares the list with NVIDIA's header.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use super::define::{Function, functions};
use super::*;

functions! { $
    cuArrayCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR);
    cuArray3DCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray);
    cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
    cuArrayDestroy(array: CUarray);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: CUstream);
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_uint);
    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData, count: usize, mode: c_uint,
    );
    cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut c_uint);
    cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        stream: CUstream, status: *mut c_uint, id: *mut u64,
    );
    cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize,
    );
    cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    );
    cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: c_uint,
    );
    cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        flags: c_uint,
    );
    cuCtxCreate(result: *mut CUcontext, flags: c_uint, dev: CUdevice);
    cuCtxCreate_v2(result: *mut CUcontext, flags: c_uint, dev: CUdevice);
    cuCtxCreate_v3(
        result: *mut CUcontext, list: *mut CUexecAffinityParam, count: c_int, flags: c_uint,
        dev: CUdevice,
    );
    cuCtxCreate_v4(
        result: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice,
    );
    cuCtxDestroy(context: CUcontext);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxAttach(result: *mut CUcontext, flags: c_uint);
    cuCtxDetach(context: CUcontext);
    cuCtxPushCurrent(context: CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent(result: *mut CUcontext);
    cuCtxPopCurrent_v2(result: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxGetCurrent(result: *mut CUcontext);
    cuCtxGetDevice(dev: *mut CUdevice);
    cuCtxGetDevice_v2(dev: *mut CUdevice, context: CUcontext);
    cuCtxGetFlags(flags: *mut c_uint);
    cuCtxSetFlags(flags: c_uint);
    cuCtxGetId(context: CUcontext, id: *mut c_ulonglong);
    cuCtxSynchronize();
    cuCtxSynchronize_v2(context: CUcontext);
    cuCtxGetLimit(value: *mut usize, limit: c_uint);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuCtxGetCacheConfig(config: *mut c_uint);
    cuCtxSetCacheConfig(config: c_uint);
    cuCtxGetSharedMemConfig(config: *mut c_uint);
    cuCtxSetSharedMemConfig(config: c_uint);
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxResetPersistingL2Cache();
    cuCtxGetExecAffinity(affinity: *mut CUexecAffinityParam, kind: c_uint);
    cuMemcpy / cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, size: usize);
    cuMemcpyAsync / cuMemcpyAsync_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: CUstream,
    );
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, size: usize);
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: *const c_void, size: usize, stream: CUstream,
    );
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, size: usize);
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(
        to: *mut c_void, from: CUdeviceptr, size: usize, stream: CUstream,
    );
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, size: usize);
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: CUstream,
    );
    cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(
        to: CUarray, offset: usize, from: *const c_void, size: usize,
    );
    cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz(
        to: CUarray, offset: usize, from: *const c_void, size: usize, stream: CUstream,
    );
    cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(
        to: *mut c_void, from: CUarray, offset: usize, size: usize,
    );
    cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz(
        to: *mut c_void, from: CUarray, offset: usize, size: usize, stream: CUstream,
    );
    cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds(
        to: CUarray, offset: usize, from: CUdeviceptr, size: usize,
    );
    cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds(
        to: CUdeviceptr, from: CUarray, offset: usize, size: usize,
    );
    cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds(
        to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, size: usize,
    );
    cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        size: usize,
    );
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        size: usize, stream: CUstream,
    );
    cuDeviceGet(result: *mut CUdevice, ordinal: c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, room: c_int, dev: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, dev: CUdevice);
    cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice);
    cuDeviceGetProperties(properties: *mut CUdevprop, dev: CUdevice);
    cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);
    cuDeviceGetLuid(luid: *mut c_char, mask: *mut c_uint, dev: CUdevice);
    cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, dev: CUdevice);
    cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char);
    cuDeviceGetTexture1DLinearMaxWidth(
        width: *mut usize, format: c_uint, channels: c_uint, dev: CUdevice,
    );
    cuDeviceGetExecAffinitySupport(supported: *mut c_int, kind: c_uint, dev: CUdevice);
    cuGetErrorName(error: CUresult, name: *mut *const c_char);
    cuGetErrorString(error: CUresult, text: *mut *const c_char);
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(result: *mut CUevent, flags: c_uint);
    cuEventDestroy(event: CUevent);
    cuEventDestroy_v2(event: CUevent);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent);
    cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent);
    cuEventRecord / cuEventRecord_ptsz(event: CUevent, stream: CUstream);
    cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint,
    );
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    cuFuncSetCacheConfig(function: CUfunction, config: c_uint);
    cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint);
    cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
    cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    cuFuncIsLoaded(state: *mut c_uint, function: CUfunction);
    cuFuncLoad(function: CUfunction);
    cuGraphCreate(result: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphClone(result: *mut CUgraph, graph: CUgraph);
    cuGraphNodeFindInClone(result: *mut CUgraphNode, node: CUgraphNode, graph: CUgraph);
    cuGraphDestroyNode(node: CUgraphNode);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize,
    );
    cuGraphGetEdges_v2(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData,
        count: *mut usize,
    );
    cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    cuGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize,
    );
    cuGraphAddDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edges: *const CUgraphEdgeData, count: usize,
    );
    cuGraphRemoveDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize,
    );
    cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edges: *const CUgraphEdgeData, count: usize,
    );
    cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
    cuUserObjectCreate(
        result: *mut CUuserObject, object: *mut c_void, destroy: CUhostFn, count: c_uint,
        flags: c_uint,
    );
    cuUserObjectRetain(object: CUuserObject, count: c_uint);
    cuUserObjectRelease(object: CUuserObject, count: c_uint);
    cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
    cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
    cuGraphInstantiate(
        result: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char,
        size: usize,
    );
    cuGraphInstantiate_v2(
        result: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char,
        size: usize,
    );
    cuGraphInstantiateWithFlags(result: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
    cuGraphExecDestroy(exec: CUgraphExec);
    cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    );
    cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, context: CUcontext,
    );
    cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    );
    cuGraphExecHostNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS,
    );
    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph);
    cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams);
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
    cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
    cuGraphExecUpdate(
        exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut c_uint,
    );
    cuGraphExecUpdate_v2(
        exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo,
    );
    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        result: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    );
    cuGraphUpload / cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream);
    cuGraphLaunch / cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream);
    cuGraphAddMemAllocNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphAddMemFreeNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        address: CUdeviceptr,
    );
    cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr);
    cuDeviceGraphMemTrim(device: CUdevice);
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void);
    cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void);
    cuGraphAddKernelNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    );
    cuGraphAddKernelNode_v2(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *mut CUlaunchAttributeValue,
    );
    cuGraphKernelNodeSetAttribute(
        node: CUgraphNode, attribute: c_uint, value: *const CUlaunchAttributeValue,
    );
    cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
    cuGraphAddMemcpyNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_MEMCPY3D, context: CUcontext,
    );
    cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMCPY3D);
    cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D);
    cuGraphAddMemsetNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext,
    );
    cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS);
    cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS);
    cuGraphAddHostNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    );
    cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS);
    cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
    cuGraphAddChildGraphNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        inner: CUgraph,
    );
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    cuGraphAddEmptyNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
    );
    cuGraphAddEventRecordNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        event: CUevent,
    );
    cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
    cuGraphAddEventWaitNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        event: CUevent,
    );
    cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
    cuGraphAddNode(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *mut CUgraphNodeParams,
    );
    cuGraphAddNode_v2(
        result: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams,
    );
    cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams);
    cuLaunchKernel / cuLaunchKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream,
        params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream,
        params: *mut *mut c_void,
    );
    cuLibraryLoadData(
        result: *mut CUlibrary, code: *const c_void, options: *mut c_uint, values: *mut *mut c_void,
        count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void,
        library_count: c_uint,
    );
    cuLibraryLoadFromFile(
        result: *mut CUlibrary, path: *const c_char, options: *mut c_uint, values: *mut *mut c_void,
        count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void,
        library_count: c_uint,
    );
    cuLibraryUnload(library: CUlibrary);
    cuLibraryGetKernel(result: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary);
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: c_uint, library: CUlibrary);
    cuLibraryGetModule(result: *mut CUmodule, library: CUlibrary);
    cuLibraryGetGlobal(
        address: *mut CUdeviceptr, size: *mut usize, library: CUlibrary, name: *const c_char,
    );
    cuLibraryGetManaged(
        address: *mut CUdeviceptr, size: *mut usize, library: CUlibrary, name: *const c_char,
    );
    cuKernelGetFunction(result: *mut CUfunction, kernel: CUkernel);
    cuKernelGetLibrary(result: *mut CUlibrary, kernel: CUkernel);
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    cuKernelGetAttribute(value: *mut c_int, attribute: c_uint, kernel: CUkernel, dev: CUdevice);
    cuKernelSetAttribute(attribute: c_uint, value: c_int, kernel: CUkernel, dev: CUdevice);
    cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, dev: CUdevice);
    cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);
    cuLinkCreate(
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, result: *mut CUlinkState,
    );
    cuLinkCreate_v2(
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, result: *mut CUlinkState,
    );
    cuLinkAddData(
        link: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char,
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    cuLinkAddData_v2(
        link: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char,
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    cuLinkAddFile_v2(
        link: CUlinkState, kind: c_uint, path: *const c_char, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void,
    );
    cuLinkComplete(link: CUlinkState, result: *mut *mut c_void, size: *mut usize);
    cuLinkDestroy(link: CUlinkState);
    cuMemAlloc_v2(result: *mut CUdeviceptr, size: usize);
    cuMemAllocPitch_v2(
        result: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint,
    );
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);
    cuMemAllocManaged(result: *mut CUdeviceptr, size: usize, flags: c_uint);
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(
        address: CUdeviceptr, size: usize, to: CUdevice, stream: CUstream,
    );
    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        address: CUdeviceptr, size: usize, to: CUmemLocation, flags: c_uint, stream: CUstream,
    );
    cuMemAdvise(address: CUdeviceptr, size: usize, advice: c_uint, device: CUdevice);
    cuMemAdvise_v2(address: CUdeviceptr, size: usize, advice: c_uint, location: CUmemLocation);
    cuMemRangeGetAttribute(
        data: *mut c_void, room: usize, attribute: c_uint, address: CUdeviceptr, size: usize,
    );
    cuMemRangeGetAttributes(
        data: *mut *mut c_void, rooms: *mut usize, attributes: *mut c_uint, count: usize,
        address: CUdeviceptr, size: usize,
    );
    cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        stream: CUstream, address: CUdeviceptr, size: usize, flags: c_uint,
    );
    cuMemAllocHost_v2(result: *mut *mut c_void, size: usize);
    cuMemHostAlloc(result: *mut *mut c_void, size: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemHostRegister(address: *mut c_void, size: usize, flags: c_uint);
    cuMemHostRegister_v2(address: *mut c_void, size: usize, flags: c_uint);
    cuMemHostUnregister(address: *mut c_void);
    cuMemHostGetDevicePointer_v2(result: *mut CUdeviceptr, address: *mut c_void, flags: c_uint);
    cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void);
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize);
    cuMemsetD8Async / cuMemsetD8Async_ptsz(
        to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream,
    );
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(
        to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
    );
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
        stream: CUstream,
    );
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize);
    cuMemsetD16Async / cuMemsetD16Async_ptsz(
        to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream,
    );
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(
        to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
    );
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: CUstream,
    );
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize);
    cuMemsetD32Async / cuMemsetD32Async_ptsz(
        to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream,
    );
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(
        to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize,
    );
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream,
    );
    cuModuleLoad(result: *mut CUmodule, path: *const c_char);
    cuModuleLoadData(result: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(
        result: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void,
    );
    cuModuleLoadFatBinary(result: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuModuleGetLoadingMode(mode: *mut c_uint);
    cuModuleGetFunction(result: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
    cuModuleEnumerateFunctions(functions: *mut CUfunction, room: c_uint, module: CUmodule);
    cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr, size: *mut usize, module: CUmodule, name: *const c_char,
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: *mut c_int, function: CUfunction, threads: c_int, dynamic: usize,
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut c_int, function: CUfunction, threads: c_int, dynamic: usize, flags: c_uint,
    );
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, dynamic_of: CUoccupancyB2DSize,
        dynamic: usize, limit: c_int,
    );
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, dynamic_of: CUoccupancyB2DSize,
        dynamic: usize, limit: c_int, flags: c_uint,
    );
    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: CUfunction, blocks: c_int, threads: c_int,
    );
    cuDeviceCanAccessPeer(can: *mut c_int, dev: CUdevice, peer: CUdevice);
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: CUdevice, to: CUdevice);
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess(peer: CUcontext);
    cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: CUdeviceptr);
    cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, address: CUdeviceptr,
    );
    cuPointerSetAttribute(value: *const c_void, attribute: c_uint, address: CUdeviceptr);
    cuDeviceGetDefaultMemPool(result: *mut CUmemoryPool, dev: CUdevice);
    cuDeviceGetMemPool(result: *mut CUmemoryPool, dev: CUdevice);
    cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);
    cuMemPoolCreate(result: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes: usize);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAccess(pool: CUmemoryPool, list: *const CUmemAccessDesc, count: usize);
    cuMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, place: *mut CUmemLocation);
    cuMemAllocAsync / cuMemAllocAsync_ptsz(result: *mut CUdeviceptr, size: usize, stream: CUstream);
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        result: *mut CUdeviceptr, size: usize, pool: CUmemoryPool, stream: CUstream,
    );
    cuMemFreeAsync / cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream);
    cuDevicePrimaryCtxRetain(result: *mut CUcontext, dev: CUdevice);
    cuDevicePrimaryCtxRelease(dev: CUdevice);
    cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    cuDevicePrimaryCtxReset(dev: CUdevice);
    cuDevicePrimaryCtxReset_v2(dev: CUdevice);
    cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);
    cuGetProcAddress_v2(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut c_uint,
    );
    cuGetExportTable(table: *mut *const c_void, id: *const CUuuid);
    cuProfilerStart();
    cuProfilerStop();
    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int);
    cuFuncSetSharedSize(function: CUfunction, bytes: c_uint);
    cuParamSetSize(function: CUfunction, bytes: c_uint);
    cuParamSeti(function: CUfunction, offset: c_int, value: c_uint);
    cuParamSetf(function: CUfunction, offset: c_int, value: f32);
    cuParamSetv(function: CUfunction, offset: c_int, value: *mut c_void, bytes: c_uint);
    cuLaunch(function: CUfunction);
    cuLaunchGrid(function: CUfunction, width: c_int, height: c_int);
    cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream);
    cuStreamCreate(result: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority(result: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy(stream: CUstream);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: CUstream);
    cuStreamQuery / cuStreamQuery_ptsz(stream: CUstream);
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint);
    cuLaunchHostFunc / cuLaunchHostFunc_ptsz(
        stream: CUstream, function: CUhostFn, user_data: *mut c_void,
    );
    cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: CUstream, function: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
    );
    cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int);
    cuStreamGetId / cuStreamGetId_ptsz(stream: CUstream, id: *mut c_ulonglong);
    cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: CUstream, result: *mut CUcontext);
    cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(
        stream: CUstream, result: *mut CUcontext, green: *mut CUgreenCtx,
    );
    cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: CUstream, dev: *mut CUdevice);
    cuTexObjectCreate(
        result: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC,
        description: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC,
    );
    cuTexObjectDestroy(object: CUtexObject);
    cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUtexObject);
    cuTexObjectGetResourceViewDesc(view: *mut CUDA_RESOURCE_VIEW_DESC, object: CUtexObject);
    cuTexObjectGetTextureDesc(description: *mut CUDA_TEXTURE_DESC, object: CUtexObject);
    cuSurfObjectCreate(result: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC);
    cuSurfObjectDestroy(object: CUsurfObject);
    cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUsurfObject);
}
