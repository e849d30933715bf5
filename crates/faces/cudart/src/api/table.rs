//! All functions of the interface, with the module or the subject of each.
//!
//! This module also defines the functions that are not served. `docs/cuda-runtime.md` is made from
//! its tables.

use std::ffi::c_int;
use std::sync::atomic::AtomicBool;

use crate::edge::returning;
use crate::edge::unserved::unserved;

/// Defines the tables. `served` functions are in the named module. So are `silent` ones: compiled
/// programs call them and ignore the result. `unserved` ones are defined here.
macro_rules! functions {
    (
        $(served $module:ident { $($name:ident),* $(,)? })*
        $(silent $silent_module:ident { $($silent:ident),* $(,)? })*
        $(unserved $subject:literal { $($lacking:ident),* $(,)? })*
    ) => {
        /// Names of the served functions, each with its module.
        pub const SERVED: &[(&str, &str)] = &[$($((stringify!($name), stringify!($module)),)*)*];

        /// Names of the functions that are not served, each with its subject. Each returns
        /// `cudaErrorNotSupported` and reports its first call.
        pub const UNSERVED: &[(&str, &str)] = &[
            $($((stringify!($lacking), $subject),)*)*
            $($((stringify!($silent), "parts of compiled programs"),)*)*
        ];

        /// Fails to compile if a listed function does not exist.
        #[allow(unused_imports, reason = "only looked up")]
        mod present {
            $(use super::super::$module::{$($name),*};)*
            $(use super::super::$silent_module::{$($silent),*};)*
        }

        $($(
            /// Not served.
            ///
            /// # Safety
            /// Safe with any argument, because no argument is read.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "C's name")]
            pub unsafe extern "C" fn $lacking() -> c_int {
                static SAID: AtomicBool = AtomicBool::new(false);
                returning(penstock_cuda_sys::runtime_codes::NOT_SUPPORTED, || unserved(&SAID, stringify!($lacking)))
            }
        )*)*
    };
}

functions! {
    served array {
        cudaArrayGetInfo, cudaCreateChannelDesc, cudaFreeArray, cudaGetChannelDesc, cudaMalloc3DArray,
        cudaMallocArray,
    }
    served capture {
        cudaStreamBeginCapture, cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz,
        cudaStreamBeginCapture_ptsz, cudaStreamEndCapture, cudaStreamEndCapture_ptsz,
        cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz, cudaStreamGetCaptureInfo_v2,
        cudaStreamGetCaptureInfo_v2_ptsz, cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz,
        cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz, cudaStreamUpdateCaptureDependencies,
        cudaStreamUpdateCaptureDependencies_ptsz, cudaStreamUpdateCaptureDependencies_v2,
        cudaStreamUpdateCaptureDependencies_v2_ptsz, cudaThreadExchangeStreamCaptureMode,
    }
    served copy {
        cudaMemcpy, cudaMemcpy2D, cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz, cudaMemcpy2D_ptds,
        cudaMemcpy3D, cudaMemcpy3DAsync, cudaMemcpy3DAsync_ptsz, cudaMemcpy3D_ptds, cudaMemcpyAsync,
        cudaMemcpyAsync_ptsz, cudaMemcpy_ptds,
    }
    served device {
        cudaChooseDevice, cudaCtxResetPersistingL2Cache, cudaDeviceGetAttribute, cudaDeviceGetByPCIBusId,
        cudaDeviceGetCacheConfig, cudaDeviceGetLimit, cudaDeviceGetPCIBusId, cudaDeviceGetSharedMemConfig,
        cudaDeviceGetStreamPriorityRange, cudaDeviceReset, cudaDeviceSetCacheConfig, cudaDeviceSetLimit,
        cudaDeviceSetSharedMemConfig, cudaDeviceSynchronize, cudaGetDevice, cudaGetDeviceCount,
        cudaGetDeviceFlags, cudaGetDeviceProperties, cudaGetDeviceProperties_v2, cudaInitDevice,
        cudaMemGetInfo, cudaSetDevice, cudaSetDeviceFlags, cudaSetDoubleForDevice, cudaSetDoubleForHost,
        cudaSetValidDevices, cudaThreadExit, cudaThreadGetCacheConfig, cudaThreadGetLimit,
        cudaThreadSetCacheConfig, cudaThreadSetLimit, cudaThreadSynchronize,
    }
    served error {
        cudaGetErrorName, cudaGetErrorString, cudaGetLastError, cudaPeekAtLastError,
    }
    served event {
        cudaEventCreate, cudaEventCreateWithFlags, cudaEventDestroy, cudaEventElapsedTime,
        cudaEventElapsedTime_v2, cudaEventQuery, cudaEventRecord, cudaEventRecordWithFlags,
        cudaEventRecordWithFlags_ptsz, cudaEventRecord_ptsz, cudaEventSynchronize,
    }
    served function {
        cudaFuncGetAttributes, cudaFuncGetName, cudaFuncGetParamInfo, cudaFuncSetAttribute,
        cudaFuncSetCacheConfig, cudaFuncSetSharedMemConfig, cudaGetFuncBySymbol,
        cudaOccupancyAvailableDynamicSMemPerBlock, cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    }
    served graph_node {
        cudaGraphAddChildGraphNode, cudaGraphAddEmptyNode, cudaGraphAddEventRecordNode,
        cudaGraphAddEventWaitNode, cudaGraphAddHostNode, cudaGraphAddKernelNode, cudaGraphAddMemAllocNode,
        cudaGraphAddMemFreeNode, cudaGraphAddMemcpyNode, cudaGraphAddMemcpyNode1D,
        cudaGraphAddMemcpyNodeFromSymbol, cudaGraphAddMemcpyNodeToSymbol, cudaGraphAddMemsetNode,
        cudaGraphAddNode, cudaGraphAddNode_v2, cudaGraphChildGraphNodeGetGraph,
        cudaGraphEventRecordNodeGetEvent, cudaGraphEventRecordNodeSetEvent,
        cudaGraphEventWaitNodeGetEvent, cudaGraphEventWaitNodeSetEvent,
        cudaGraphExecChildGraphNodeSetParams, cudaGraphExecEventRecordNodeSetEvent,
        cudaGraphExecEventWaitNodeSetEvent, cudaGraphExecHostNodeSetParams,
        cudaGraphExecKernelNodeSetParams, cudaGraphExecMemcpyNodeSetParams,
        cudaGraphExecMemcpyNodeSetParams1D, cudaGraphExecMemcpyNodeSetParamsFromSymbol,
        cudaGraphExecMemcpyNodeSetParamsToSymbol, cudaGraphExecMemsetNodeSetParams,
        cudaGraphExecNodeSetParams, cudaGraphHostNodeGetParams, cudaGraphHostNodeSetParams,
        cudaGraphKernelNodeCopyAttributes, cudaGraphKernelNodeGetAttribute, cudaGraphKernelNodeGetParams,
        cudaGraphKernelNodeSetAttribute, cudaGraphKernelNodeSetParams, cudaGraphMemAllocNodeGetParams,
        cudaGraphMemFreeNodeGetParams, cudaGraphMemcpyNodeGetParams, cudaGraphMemcpyNodeSetParams,
        cudaGraphMemcpyNodeSetParams1D, cudaGraphMemcpyNodeSetParamsFromSymbol,
        cudaGraphMemcpyNodeSetParamsToSymbol, cudaGraphMemsetNodeGetParams, cudaGraphMemsetNodeSetParams,
        cudaGraphNodeSetParams,
    }
    served graph {
        cudaDeviceGetGraphMemAttribute, cudaDeviceGraphMemTrim, cudaDeviceSetGraphMemAttribute,
        cudaGraphAddDependencies, cudaGraphAddDependencies_v2, cudaGraphClone, cudaGraphCreate,
        cudaGraphDebugDotPrint, cudaGraphDestroy, cudaGraphDestroyNode, cudaGraphExecDestroy,
        cudaGraphExecGetFlags, cudaGraphExecUpdate, cudaGraphGetEdges, cudaGraphGetEdges_v2,
        cudaGraphGetNodes, cudaGraphGetRootNodes, cudaGraphInstantiate, cudaGraphInstantiateWithFlags,
        cudaGraphInstantiateWithParams, cudaGraphInstantiateWithParams_ptsz, cudaGraphLaunch,
        cudaGraphLaunch_ptsz, cudaGraphNodeFindInClone, cudaGraphNodeGetDependencies,
        cudaGraphNodeGetDependencies_v2, cudaGraphNodeGetDependentNodes,
        cudaGraphNodeGetDependentNodes_v2, cudaGraphNodeGetEnabled, cudaGraphNodeGetType,
        cudaGraphNodeSetEnabled, cudaGraphReleaseUserObject, cudaGraphRemoveDependencies,
        cudaGraphRemoveDependencies_v2, cudaGraphRetainUserObject, cudaGraphUpload, cudaGraphUpload_ptsz,
        cudaUserObjectCreate, cudaUserObjectRelease, cudaUserObjectRetain,
    }
    served kernel {
        cudaLibraryEnumerateKernels, cudaLibraryGetGlobal, cudaLibraryGetKernel,
        cudaLibraryGetManaged,
        cudaLibraryGetKernelCount, cudaLibraryLoadData, cudaLibraryLoadFromFile, cudaLibraryUnload,
    }
    served launch {
        __cudaLaunchKernel, __cudaLaunchKernel_ptsz, __cudaPopCallConfiguration,
        __cudaPushCallConfiguration, cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz,
        cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz, cudaLaunchKernel, cudaLaunchKernelExC,
        cudaLaunchKernelExC_ptsz, cudaLaunchKernel_ptsz,
    }
    served managed {
        cudaMemAdvise, cudaMemAdvise_v2, cudaMemPrefetchAsync, cudaMemPrefetchAsync_ptsz,
        cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_v2_ptsz, cudaMemRangeGetAttribute,
        cudaMemRangeGetAttributes, cudaStreamAttachMemAsync, cudaStreamAttachMemAsync_ptsz,
    }
    served memory {
        cudaFree, cudaFreeAsync, cudaFreeAsync_ptsz, cudaFreeHost, cudaHostAlloc,
        cudaHostGetDevicePointer, cudaHostGetFlags, cudaHostRegister, cudaHostUnregister, cudaMalloc,
        cudaMalloc3D, cudaMallocAsync, cudaMallocAsync_ptsz, cudaMallocHost, cudaMallocManaged,
        cudaMallocPitch, cudaPointerGetAttributes,
    }
    served memset {
        cudaMemset, cudaMemset2D, cudaMemset2DAsync, cudaMemset2DAsync_ptsz, cudaMemset2D_ptds,
        cudaMemset3D, cudaMemset3DAsync, cudaMemset3DAsync_ptsz, cudaMemset3D_ptds, cudaMemsetAsync,
        cudaMemsetAsync_ptsz, cudaMemset_ptds,
    }
    served peer {
        cudaDeviceCanAccessPeer, cudaDeviceDisablePeerAccess, cudaDeviceEnablePeerAccess,
        cudaDeviceGetP2PAttribute, cudaDeviceGetTexture1DLinearMaxWidth, cudaMemcpy3DPeer,
        cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync_ptsz, cudaMemcpy3DPeer_ptds, cudaMemcpyPeer,
        cudaMemcpyPeerAsync,
    }
    served pool {
        cudaDeviceGetDefaultMemPool, cudaDeviceGetMemPool, cudaDeviceSetMemPool, cudaMallocFromPoolAsync,
        cudaMallocFromPoolAsync_ptsz, cudaMemGetDefaultMemPool, cudaMemGetMemPool, cudaMemPoolCreate,
        cudaMemPoolDestroy, cudaMemPoolGetAccess, cudaMemPoolGetAttribute, cudaMemPoolSetAccess,
        cudaMemPoolSetAttribute, cudaMemPoolTrimTo, cudaMemSetMemPool,
    }
    served registration {
        __cudaGetKernel, __cudaInitModule, __cudaRegisterFatBinary, __cudaRegisterFatBinaryEnd,
        __cudaRegisterFunction, __cudaRegisterManagedVar, __cudaRegisterVar, __cudaUnregisterFatBinary,
        cudaGetKernel,
    }
    served row {
        cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray_ptds, cudaMemcpy2DFromArray,
        cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz, cudaMemcpy2DFromArray_ptds,
        cudaMemcpy2DToArray, cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz,
        cudaMemcpy2DToArray_ptds, cudaMemcpyArrayToArray, cudaMemcpyArrayToArray_ptds,
        cudaMemcpyFromArray, cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync_ptsz,
        cudaMemcpyFromArray_ptds, cudaMemcpyToArray, cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz,
        cudaMemcpyToArray_ptds,
    }
    served stream {
        cudaStreamAddCallback, cudaStreamAddCallback_ptsz, cudaStreamCreate, cudaStreamCreateWithFlags,
        cudaStreamCreateWithPriority, cudaStreamDestroy, cudaStreamGetDevice, cudaStreamGetDevice_ptsz,
        cudaStreamGetFlags, cudaStreamGetFlags_ptsz, cudaStreamGetId, cudaStreamGetId_ptsz,
        cudaStreamGetPriority, cudaStreamGetPriority_ptsz, cudaStreamQuery, cudaStreamQuery_ptsz,
        cudaStreamSynchronize, cudaStreamSynchronize_ptsz, cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz,
    }
    served symbol {
        cudaGetSymbolAddress, cudaGetSymbolSize, cudaMemcpyFromSymbol, cudaMemcpyFromSymbolAsync,
        cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbol_ptds, cudaMemcpyToSymbol,
        cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbol_ptds,
    }
    served texture {
        cudaCreateSurfaceObject, cudaCreateTextureObject, cudaDestroySurfaceObject,
        cudaDestroyTextureObject, cudaGetSurfaceObjectResourceDesc, cudaGetTextureObjectResourceDesc,
        cudaGetTextureObjectResourceViewDesc, cudaGetTextureObjectTextureDesc,
    }
    served version {
        cudaDriverGetVersion, cudaGetDriverEntryPoint, cudaGetDriverEntryPointByVersion,
        cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPoint_ptsz, cudaProfilerStart,
        cudaProfilerStop, cudaRuntimeGetVersion,
    }

    silent registration {
        __cudaGetProcAddress, __cudaRegisterHostVar, __cudaRegisterUnifiedTable,
    }

    unserved "attributes of streams" {
        cudaStreamCopyAttributes, cudaStreamCopyAttributes_ptsz, cudaStreamGetAttribute,
        cudaStreamGetAttribute_ptsz, cudaStreamSetAttribute, cudaStreamSetAttribute_ptsz,
    }
    unserved "batches of copies" {
        cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync_ptsz, cudaMemcpyBatchAsync,
        cudaMemcpyBatchAsync_ptsz,
    }
    unserved "clusters of blocks" {
        cudaOccupancyMaxActiveClusters, cudaOccupancyMaxPotentialClusterSize,
    }
    unserved "graphics (OpenGL, EGL, VDPAU)" {
        cudaEGLStreamConsumerAcquireFrame, cudaEGLStreamConsumerConnect,
        cudaEGLStreamConsumerConnectWithFlags, cudaEGLStreamConsumerDisconnect,
        cudaEGLStreamConsumerReleaseFrame, cudaEGLStreamProducerConnect, cudaEGLStreamProducerDisconnect,
        cudaEGLStreamProducerPresentFrame, cudaEGLStreamProducerReturnFrame, cudaEventCreateFromEGLSync,
        cudaGLGetDevices, cudaGLMapBufferObject, cudaGLMapBufferObjectAsync, cudaGLRegisterBufferObject,
        cudaGLSetBufferObjectMapFlags, cudaGLSetGLDevice, cudaGLUnmapBufferObject,
        cudaGLUnmapBufferObjectAsync, cudaGLUnregisterBufferObject, cudaGraphicsEGLRegisterImage,
        cudaGraphicsGLRegisterBuffer, cudaGraphicsGLRegisterImage, cudaGraphicsMapResources,
        cudaGraphicsResourceGetMappedEglFrame, cudaGraphicsResourceGetMappedMipmappedArray,
        cudaGraphicsResourceGetMappedPointer, cudaGraphicsResourceSetMapFlags,
        cudaGraphicsSubResourceGetMappedArray, cudaGraphicsUnmapResources, cudaGraphicsUnregisterResource,
        cudaGraphicsVDPAURegisterOutputSurface, cudaGraphicsVDPAURegisterVideoSurface, cudaVDPAUGetDevice,
        cudaVDPAUSetVDPAUDevice,
    }
    unserved "graphs: conditional nodes, semaphores of other interfaces" {
        cudaGraphAddExternalSemaphoresSignalNode, cudaGraphAddExternalSemaphoresWaitNode,
        cudaGraphConditionalHandleCreate, cudaGraphExecExternalSemaphoresSignalNodeSetParams,
        cudaGraphExecExternalSemaphoresWaitNodeSetParams, cudaGraphExternalSemaphoresSignalNodeGetParams,
        cudaGraphExternalSemaphoresSignalNodeSetParams, cudaGraphExternalSemaphoresWaitNodeGetParams,
        cudaGraphExternalSemaphoresWaitNodeSetParams,
    }
    unserved "logs and notifications" {
        cudaDeviceRegisterAsyncNotification, cudaDeviceUnregisterAsyncNotification, cudaLogsCurrent,
        cudaLogsDumpToFile, cudaLogsDumpToMemory, cudaLogsRegisterCallback, cudaLogsUnregisterCallback,
    }
    unserved "memory and events of other processes" {
        cudaIpcCloseMemHandle, cudaIpcGetEventHandle, cudaIpcGetMemHandle, cudaIpcOpenEventHandle,
        cudaIpcOpenMemHandle,
    }
    unserved "memory and semaphores of other interfaces" {
        cudaDestroyExternalMemory, cudaDestroyExternalSemaphore, cudaDeviceGetNvSciSyncAttributes,
        cudaExternalMemoryGetMappedBuffer, cudaExternalMemoryGetMappedMipmappedArray,
        cudaImportExternalMemory, cudaImportExternalSemaphore, cudaSignalExternalSemaphoresAsync,
        cudaSignalExternalSemaphoresAsync_ptsz, cudaSignalExternalSemaphoresAsync_v2,
        cudaSignalExternalSemaphoresAsync_v2_ptsz, cudaWaitExternalSemaphoresAsync,
        cudaWaitExternalSemaphoresAsync_ptsz, cudaWaitExternalSemaphoresAsync_v2,
        cudaWaitExternalSemaphoresAsync_v2_ptsz,
    }
    unserved "memory pools" {
        cudaMemPoolExportPointer, cudaMemPoolExportToShareableHandle,
        cudaMemPoolImportFromShareableHandle,
        cudaMemPoolImportPointer, }
    unserved "batches for managed memory" {
        cudaMemDiscardAndPrefetchBatchAsync, cudaMemDiscardAndPrefetchBatchAsync_ptsz,
        cudaMemDiscardBatchAsync, cudaMemDiscardBatchAsync_ptsz, cudaMemPrefetchBatchAsync,
        cudaMemPrefetchBatchAsync_ptsz,
    }
    unserved "mipmapped, sparse and planar arrays" {
        cudaArrayGetMemoryRequirements, cudaArrayGetPlane, cudaArrayGetSparseProperties,
        cudaFreeMipmappedArray, cudaGetMipmappedArrayLevel, cudaMallocMipmappedArray,
        cudaMipmappedArrayGetMemoryRequirements, cudaMipmappedArrayGetSparseProperties,
    }
    unserved "others" {
        cudaDeviceFlushGPUDirectRDMAWrites, cudaDeviceGetHostAtomicCapabilities,
        cudaDeviceGetP2PAtomicCapabilities, cudaGetExportTable, cudaKernelSetAttributeForDevice,
        cudaLaunchCooperativeKernelMultiDevice, cudaLibraryGetUnifiedFunction,
    }
}
