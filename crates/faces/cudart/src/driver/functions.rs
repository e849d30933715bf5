//! The table of the driver's functions.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::atomic::AtomicBool;

use penstock_cuda_sys::driver::*;
use penstock_cuda_sys::{driver_parameters, driver_table};

use super::LACKING;
use super::library::Library;
use crate::edge::unserved::say_once;
use crate::edge::{RtError, RtResult};

/// Makes the table from names of the list of driver functions, and for each function a method that
/// returns a [`RtResult`].
macro_rules! functions {
    ($($name:ident,)*) => {
        driver_table! {
            /// The driver's functions that the runtime uses. One that the driver lacks is `None`.
            #[derive(Debug)]
            pub(crate) struct Table { optional { $($name,)* } }
        }

        impl Functions {
            $(driver_parameters!($name method);)*
        }
    };
}

/// Defines the method of one function.
macro_rules! method {
    ($name:ident($($parameter:ident: $type:ty),*)) => {
        /// # Safety
        /// Arguments are as the driver's function of this name requires.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
        #[inline]
        pub(crate) unsafe fn $name(&self $(, $parameter: $type)*) -> RtResult {
            static SAID: AtomicBool = AtomicBool::new(false);
            let told = RtError::from_driver(match self.0.$name {
                // SAFETY: the caller upholds the contract of this function.
                Some(function) => unsafe { function($($parameter),*) },
                None => {
                    say_once(&SAID, concat!(stringify!($name), ", which the driver lacks,"));
                    LACKING
                }
            });
            if told.is_err_and(RtError::is_sticky) {
                self.keep(told);
            }
            told
        }
    };
}

/// The driver's functions.
#[derive(Debug)]
pub(crate) struct Functions(Table);

impl Functions {
    /// Looks up all functions.
    pub(super) fn of(library: Library) -> Option<Self> {
        // SAFETY: the library is the driver, and it is never closed.
        unsafe { Table::load(|name| library.symbol(name)) }.ok().map(Self)
    }

    /// Keeps an error for the current context, in which it occurred.
    #[cold]
    fn keep(&self, told: RtResult) {
        let mut context: CUcontext = std::ptr::null_mut();
        if let (Err(error), Some(ask)) = (told, self.0.cuCtxGetCurrent) {
            // SAFETY: the pointer is valid for a write of the answer.
            _ = unsafe { ask(&raw mut context) };
            if !context.is_null() {
                error.keep_for(context.addr());
            }
        }
    }
    /// Whether the driver can allocate and free memory in the order of a stream.
    pub(crate) fn has_stream_order(&self) -> bool {
        self.0.cuMemAllocAsync.is_some() && self.0.cuMemFreeAsync.is_some()
    }
}

functions! {
    cuInit, cuDriverGetVersion, cuGetProcAddress_v2,

    cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
    cuDeviceGetAttribute, cuDeviceGetByPCIBusId, cuDeviceGetPCIBusId, cuDeviceCanAccessPeer,
    cuDeviceGetP2PAttribute, cuDeviceGetTexture1DLinearMaxWidth, cuDevicePrimaryCtxRetain,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxSetFlags_v2,
    cuDevicePrimaryCtxGetState,

    cuCtxGetCurrent, cuCtxSetCurrent, cuCtxGetDevice, cuCtxSynchronize, cuCtxGetLimit,
    cuCtxSetLimit, cuCtxGetCacheConfig, cuCtxSetCacheConfig, cuCtxGetStreamPriorityRange,
    cuCtxEnablePeerAccess, cuCtxDisablePeerAccess,

    cuModuleLoadDataEx, cuLinkCreate_v2, cuLinkAddData_v2, cuLinkComplete, cuLinkDestroy,
    cuModuleUnload, cuModuleGetFunction, cuModuleGetGlobal_v2, cuFuncGetAttribute,
    cuFuncSetAttribute, cuFuncSetCacheConfig, cuFuncGetParamInfo, cuLibraryLoadData,
    cuLibraryLoadFromFile, cuLibraryUnload, cuLibraryGetKernel, cuLibraryGetKernelCount,
    cuLibraryEnumerateKernels, cuLibraryGetGlobal, cuLibraryGetManaged,

    cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchKernelEx, cuLaunchHostFunc,
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyAvailableDynamicSMemPerBlock,

    cuMemAdvise_v2, cuMemPrefetchAsync_v2, cuMemRangeGetAttribute, cuMemRangeGetAttributes,
    cuStreamAttachMemAsync,

    cuMemGetInfo_v2, cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemAllocManaged, cuMemAllocAsync,
    cuMemFreeAsync, cuMemAllocFromPoolAsync, cuDeviceGetDefaultMemPool, cuDeviceGetMemPool,
    cuDeviceSetMemPool, cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolTrimTo, cuMemPoolGetAttribute,
    cuMemPoolSetAttribute, cuMemPoolGetAccess, cuMemPoolSetAccess, cuMemFree_v2, cuMemHostAlloc,
    cuMemFreeHost, cuMemHostRegister_v2, cuMemHostUnregister, cuMemHostGetDevicePointer_v2,
    cuMemHostGetFlags, cuPointerGetAttribute,

    cuMemcpyHtoD_v2, cuMemcpyDtoH_v2, cuMemcpyDtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2,
    cuMemcpyDtoDAsync_v2, cuMemcpyAsync, cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2, cuMemcpy3D_v2,
    cuMemcpy3DAsync_v2, cuMemcpyPeer, cuMemcpyPeerAsync, cuMemsetD8_v2, cuMemsetD8Async,
    cuMemsetD2D8_v2, cuMemsetD2D8Async,

    cuArrayCreate_v2, cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayDestroy,
    cuTexObjectCreate, cuTexObjectDestroy, cuSurfObjectCreate, cuSurfObjectDestroy,

    cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamSynchronize,
    cuStreamQuery, cuStreamWaitEvent, cuStreamAddCallback, cuStreamGetFlags, cuStreamGetPriority,
    cuStreamGetCtx, cuStreamGetId,

    cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventRecordWithFlags, cuEventSynchronize,
    cuEventQuery, cuEventElapsedTime,

    cuStreamBeginCapture_v2, cuStreamBeginCaptureToGraph, cuStreamEndCapture, cuStreamIsCapturing,
    cuStreamGetCaptureInfo_v3, cuStreamUpdateCaptureDependencies_v2,
    cuThreadExchangeStreamCaptureMode, cuGraphCreate, cuGraphDestroy, cuGraphClone,
    cuGraphNodeFindInClone, cuGraphDestroyNode, cuGraphNodeGetType, cuGraphGetNodes,
    cuGraphGetRootNodes, cuGraphGetEdges_v2, cuGraphNodeGetDependencies_v2,
    cuGraphNodeGetDependentNodes_v2, cuGraphAddDependencies_v2, cuGraphRemoveDependencies_v2,
    cuGraphDebugDotPrint, cuGraphInstantiateWithFlags, cuGraphExecGetFlags, cuGraphExecDestroy,
    cuGraphExecUpdate_v2, cuGraphNodeSetEnabled, cuGraphNodeGetEnabled, cuUserObjectCreate,
    cuUserObjectRetain, cuUserObjectRelease, cuGraphRetainUserObject, cuGraphReleaseUserObject,
    cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams, cuGraphAddHostNode,
    cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams,
    cuGraphAddChildGraphNode, cuGraphChildGraphNodeGetGraph, cuGraphExecChildGraphNodeSetParams,
    cuGraphAddEmptyNode, cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent,
    cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, cuGraphAddEventWaitNode,
    cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent,
    cuGraphAddMemAllocNode, cuGraphMemAllocNodeGetParams, cuGraphKernelNodeSetAttribute,
    cuGraphKernelNodeGetAttribute, cuGraphKernelNodeCopyAttributes, cuGraphInstantiateWithParams,
    cuDeviceGraphMemTrim, cuDeviceGetGraphMemAttribute, cuDeviceSetGraphMemAttribute, cuGraphLaunch,
    cuGraphUpload, cuGraphAddKernelNode, cuGraphKernelNodeGetParams, cuGraphKernelNodeSetParams,
    cuGraphExecKernelNodeSetParams, cuGraphAddMemcpyNode, cuGraphMemcpyNodeGetParams,
    cuGraphMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, cuGraphAddMemsetNode,
    cuGraphExecMemsetNodeSetParams, cuGraphAddMemFreeNode, cuGraphMemFreeNodeGetParams,
    cuGraphAddNode_v2, cuGraphNodeSetParams, cuGraphExecNodeSetParams,
}
