//! All functions: which are served, and in which module. docs/cuda.md and the stubs are generated
//! from it.

/// All functions of the interface: name, and the version of the interface that introduced it.
const SYMBOLS: &str = include_str!("symbols.txt");

macro_rules! served {
    ($(in $module:ident { $($name:ident),* $(,)? })*) => {
        /// The functions that are served, each with its module of [`crate::api`].
        pub const SERVED: &[(&str, &str)] = &[$($((stringify!($name), stringify!($module)),)*)*];

        // Each function has the type that the list of driver functions has for it.
        $($(const _: ::penstock_cuda_sys::driver::function::$name = super::$module::$name;)*)*

        /// Names and addresses of the functions that are served.
        fn served() -> impl Iterator<Item = (&'static str, usize)> {
            [$($((stringify!($name), (super::$module::$name as *const ()).expose_provenance()),)*)*].into_iter()
        }
    };
}

served! {
    in array {
        cuArrayCreate_v2, cuArray3DCreate_v2, cuArrayGetDescriptor_v2, cuArray3DGetDescriptor_v2,
        cuArrayDestroy,
    }
    in capture {
        cuThreadExchangeStreamCaptureMode, cuStreamBeginCapture, cuStreamBeginCapture_ptsz,
        cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, cuStreamBeginCaptureToGraph,
        cuStreamBeginCaptureToGraph_ptsz, cuStreamEndCapture, cuStreamEndCapture_ptsz,
        cuStreamIsCapturing, cuStreamIsCapturing_ptsz, cuStreamGetCaptureInfo,
        cuStreamGetCaptureInfo_ptsz, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
        cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz, cuStreamUpdateCaptureDependencies,
        cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies_v2,
        cuStreamUpdateCaptureDependencies_v2_ptsz,
    }
    in context {
        cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuCtxDestroy, cuCtxDestroy_v2,
        cuCtxAttach, cuCtxDetach,
        cuCtxPushCurrent, cuCtxPushCurrent_v2, cuCtxPopCurrent, cuCtxPopCurrent_v2, cuCtxSetCurrent,
        cuCtxGetCurrent, cuCtxGetDevice, cuCtxGetDevice_v2, cuCtxGetFlags, cuCtxSetFlags, cuCtxGetId,
        cuCtxSynchronize, cuCtxSynchronize_v2, cuCtxGetLimit, cuCtxSetLimit, cuCtxGetCacheConfig,
        cuCtxSetCacheConfig, cuCtxGetSharedMemConfig, cuCtxSetSharedMemConfig, cuCtxGetApiVersion,
        cuCtxGetStreamPriorityRange, cuCtxResetPersistingL2Cache, cuCtxGetExecAffinity,
    }
    in copy {
        cuMemcpy, cuMemcpy_ptds, cuMemcpyAsync, cuMemcpyAsync_ptsz, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds,
        cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds,
        cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds,
        cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds,
        cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds,
        cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
        cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds, cuMemcpyPeer,
        cuMemcpyPeer_ptds, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
    }
    in device {
        cuDeviceGet, cuDeviceGetCount, cuDeviceGetName, cuDeviceTotalMem_v2, cuDeviceGetAttribute,
        cuDeviceComputeCapability, cuDeviceGetProperties, cuDeviceGetUuid, cuDeviceGetUuid_v2,
        cuDeviceGetLuid, cuDeviceGetPCIBusId, cuDeviceGetByPCIBusId, cuDeviceGetTexture1DLinearMaxWidth,
        cuDeviceGetExecAffinitySupport,
    }
    in error {
        cuGetErrorName, cuGetErrorString, cuInit, cuDriverGetVersion,
    }
    in event {
        cuEventCreate, cuEventDestroy, cuEventDestroy_v2, cuEventQuery, cuEventSynchronize,
        cuEventElapsedTime, cuEventElapsedTime_v2, cuEventRecord, cuEventRecord_ptsz, cuEventRecordWithFlags,
        cuEventRecordWithFlags_ptsz,
    }
    in function {
        cuFuncGetAttribute, cuFuncSetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig,
        cuFuncGetModule, cuFuncGetName, cuFuncGetParamInfo, cuFuncIsLoaded, cuFuncLoad,
    }
    in graph {
        cuGraphCreate, cuGraphDestroy, cuGraphClone, cuGraphNodeFindInClone, cuGraphDestroyNode,
        cuGraphNodeGetType, cuGraphGetNodes, cuGraphGetRootNodes, cuGraphGetEdges, cuGraphGetEdges_v2,
        cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependentNodes,
        cuGraphNodeGetDependentNodes_v2, cuGraphAddDependencies, cuGraphAddDependencies_v2,
        cuGraphRemoveDependencies, cuGraphRemoveDependencies_v2, cuGraphDebugDotPrint,
        cuUserObjectCreate, cuUserObjectRetain, cuUserObjectRelease, cuGraphRetainUserObject,
        cuGraphReleaseUserObject,
    }
    in graph_exec {
        cuGraphInstantiate, cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphExecGetFlags,
        cuGraphExecDestroy, cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2,
        cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams, cuGraphExecHostNodeSetParams,
        cuGraphExecChildGraphNodeSetParams, cuGraphExecEventRecordNodeSetEvent,
        cuGraphExecEventWaitNodeSetEvent, cuGraphExecNodeSetParams, cuGraphNodeSetEnabled,
        cuGraphNodeGetEnabled, cuGraphExecUpdate, cuGraphExecUpdate_v2, cuGraphInstantiateWithParams,
        cuGraphInstantiateWithParams_ptsz, cuGraphUpload, cuGraphUpload_ptsz, cuGraphLaunch,
        cuGraphLaunch_ptsz,
    }
    in graph_memory {
        cuGraphAddMemAllocNode, cuGraphMemAllocNodeGetParams, cuGraphAddMemFreeNode,
        cuGraphMemFreeNodeGetParams, cuDeviceGraphMemTrim, cuDeviceGetGraphMemAttribute,
        cuDeviceSetGraphMemAttribute,
    }
    in graph_node {
        cuGraphAddKernelNode, cuGraphAddKernelNode_v2, cuGraphKernelNodeGetParams,
        cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2,
        cuGraphKernelNodeGetAttribute, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeCopyAttributes,
        cuGraphAddMemcpyNode, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams,
        cuGraphAddMemsetNode, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams,
        cuGraphAddHostNode, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams,
        cuGraphAddChildGraphNode, cuGraphChildGraphNodeGetGraph, cuGraphAddEmptyNode,
        cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
        cuGraphAddEventWaitNode, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent,
        cuGraphAddNode, cuGraphAddNode_v2, cuGraphNodeSetParams,
    }
    in launch {
        cuLaunchKernel, cuLaunchKernel_ptsz, cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
        cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
    }
    in library {
        cuLibraryLoadData, cuLibraryLoadFromFile, cuLibraryUnload, cuLibraryGetKernel,
        cuLibraryGetKernelCount, cuLibraryEnumerateKernels, cuLibraryGetModule, cuLibraryGetGlobal,
        cuLibraryGetManaged, cuKernelGetFunction, cuKernelGetLibrary, cuKernelGetName, cuKernelGetAttribute,
        cuKernelSetAttribute, cuKernelSetCacheConfig, cuKernelGetParamInfo,
    }
    in link {
        cuLinkCreate, cuLinkCreate_v2, cuLinkAddData, cuLinkAddData_v2, cuLinkAddFile_v2, cuLinkComplete,
        cuLinkDestroy,
    }
    in managed {
        cuMemAdvise, cuMemAdvise_v2, cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
        cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz, cuMemRangeGetAttribute,
        cuMemRangeGetAttributes, cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
    }
    in memory {
        cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemFree_v2, cuMemGetInfo_v2, cuMemGetAddressRange_v2,
        cuMemAllocManaged, cuMemAllocHost_v2, cuMemHostAlloc, cuMemFreeHost, cuMemHostRegister,
        cuMemHostRegister_v2, cuMemHostUnregister, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags,
    }
    in memset {
        cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuMemsetD8Async, cuMemsetD8Async_ptsz, cuMemsetD2D8_v2,
        cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz, cuMemsetD16_v2, cuMemsetD16_v2_ptds,
        cuMemsetD16Async, cuMemsetD16Async_ptsz, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async,
        cuMemsetD2D16Async_ptsz, cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD32Async, cuMemsetD32Async_ptsz,
        cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
    }
    in module {
        cuModuleLoad, cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuModuleUnload,
        cuModuleGetLoadingMode, cuModuleGetFunction, cuModuleGetFunctionCount, cuModuleEnumerateFunctions,
        cuModuleGetGlobal_v2,
    }
    in occupancy {
        cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSizeWithFlags,
        cuOccupancyAvailableDynamicSMemPerBlock,
    }
    in peer {
        cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess,
    }
    in pointer {
        cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute,
    }
    in pool {
        cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool, cuMemPoolCreate, cuMemPoolDestroy,
        cuMemPoolTrimTo, cuMemPoolGetAttribute, cuMemPoolSetAttribute, cuMemPoolSetAccess, cuMemPoolGetAccess,
        cuMemAllocAsync, cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
        cuMemFreeAsync, cuMemFreeAsync_ptsz,
    }
    in primary {
        cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2,
        cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxSetFlags,
        cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxGetState,
    }
    in proc_address {
        cuGetProcAddress, cuGetProcAddress_v2, cuGetExportTable,
    }
    in profiler {
        cuProfilerStart, cuProfilerStop,
    }
    in row {
        cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds,
        cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DAsync_v2,
        cuMemcpy3DAsync_v2_ptsz,
    }
    in setup {
        cuFuncSetBlockShape, cuFuncSetSharedSize, cuParamSetSize, cuParamSeti, cuParamSetf, cuParamSetv, cuLaunch,
        cuLaunchGrid, cuLaunchGridAsync,
    }
    in stream {
        cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy, cuStreamDestroy_v2,
        cuStreamSynchronize, cuStreamSynchronize_ptsz, cuStreamQuery,
        cuStreamQuery_ptsz, cuStreamWaitEvent, cuStreamWaitEvent_ptsz, cuLaunchHostFunc,
        cuLaunchHostFunc_ptsz, cuStreamAddCallback, cuStreamAddCallback_ptsz, cuStreamGetFlags,
        cuStreamGetFlags_ptsz, cuStreamGetPriority, cuStreamGetPriority_ptsz, cuStreamGetId,
        cuStreamGetId_ptsz, cuStreamGetCtx, cuStreamGetCtx_ptsz, cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz,
        cuStreamGetDevice, cuStreamGetDevice_ptsz,
    }
    in texture {
        cuSurfObjectCreate, cuSurfObjectDestroy, cuSurfObjectGetResourceDesc,
        cuTexObjectCreate, cuTexObjectDestroy, cuTexObjectGetResourceDesc,
        cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc,
    }
}

/// Returns all symbols and their versions.
pub fn symbols() -> impl Iterator<Item = (&'static str, i32)> {
    SYMBOLS.lines().filter_map(|line| {
        let (name, version) = line.split_once(' ')?;
        Some((name, version.parse().ok()?))
    })
}

/// Returns the names of the functions that are not served.
pub fn refused() -> impl Iterator<Item = &'static str> {
    super::unserved::REFUSED.iter().map(|(name, _)| *name)
}

macro_rules! own {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        /// Functions that CUDA does not have. include/penstock_cuda.h describes those of heaps.
        pub const OWN: &[&str] = &[$($(stringify!($name)),*),*];

        /// Names and addresses of [`OWN`].
        pub(super) fn own() -> impl Iterator<Item = (&'static str, usize)> {
            [$($((stringify!($name), (super::$module::$name as *const ()).expose_provenance())),*),*].into_iter()
        }
    };
}

own! {
    heap: penstockHeapCreate, penstockHeapClose, penstockHeapGetPointer, penstockHeapGetSize, penstockHeapGetPath, penstockHeapLaunch,
    penstockHeapRead, penstockHeapWrite, penstockHeapAbort, penstockHeapGetAborted, penstockHeapReset, penstockHeapGetText;
    library_call: penstockLibraryCall, penstockLibraryCheck, penstockLibrarySupport;
    pointer: penstockHostAddress;
    grant: penstockGrantWorker, penstockGrantInvite, penstockGrantVisit, penstockGrantMake,
    penstockGrantRevoke, penstockGrantSend, penstockGrantEnd;
}

/// Returns names and addresses of all functions of the interface.
pub(super) fn addresses() -> impl Iterator<Item = (&'static str, usize)> {
    let refused = super::unserved::REFUSED
        .iter()
        .map(|(name, stub)| (*name, (*stub as *const ()).expose_provenance()));
    served().chain(refused)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use penstock_cuda_sys::driver::FUNCTIONS;

    use super::*;

    #[test]
    fn every_symbol_is_served_or_refused_and_nothing_twice() {
        let all: BTreeSet<&str> = symbols().map(|(name, _)| name).collect();
        let names: Vec<&str> = addresses().map(|(name, _)| name).collect();
        assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(names.len(), all.len());
        assert_eq!(symbols().count(), SYMBOLS.lines().count());
    }

    #[test]
    fn the_list_of_driver_functions_is_served() {
        let served: BTreeSet<&str> = SERVED.iter().map(|(name, _)| *name).collect();
        let listed = FUNCTIONS.iter().flat_map(|function| function.symbols).copied();
        assert_eq!(listed.collect::<BTreeSet<_>>(), served);
    }
}
