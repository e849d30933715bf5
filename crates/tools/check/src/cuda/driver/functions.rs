//! The functions of `libcuda.so.1` that the programs call.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use super::OpenError;

penstock_cuda_sys::driver_table! {
    pub(super) struct Functions {
        needed {
            cuInit, cuDriverGetVersion, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName,
            cuDeviceGetAttribute, cuDevicePrimaryCtxRetain, cuCtxCreate_v2, cuCtxSetCurrent,
            cuCtxSynchronize, cuModuleLoadData, cuModuleLoadDataEx, cuModuleUnload,
            cuModuleGetFunction, cuMemHostAlloc, cuMemFreeHost,
            cuMemHostRegister_v2, cuMemHostUnregister, cuStreamCreate, cuStreamDestroy_v2,
            cuStreamSynchronize, cuStreamQuery, cuStreamWaitEvent, cuEventCreate, cuEventDestroy_v2,
            cuEventRecord, cuEventSynchronize, cuEventQuery, cuMemAlloc_v2, cuMemFree_v2,
            cuMemAllocAsync, cuMemFreeAsync, cuMemcpyHtoD_v2, cuMemcpyDtoH_v2, cuMemcpyDtoD_v2,
            cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoDAsync_v2,
            cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2, cuMemcpyPeer, cuMemcpyPeerAsync,
            cuMemsetD8_v2, cuMemsetD16_v2, cuMemsetD32_v2, cuMemsetD2D32_v2, cuMemsetD8Async,
            cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D32Async, cuLaunchKernel,
            cuLaunchHostFunc, cuStreamBeginCapture_v2, cuStreamEndCapture,
            cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy,
        }
    }
}

impl Functions {
    /// Looks up the functions in CUDA's driver, which must not be closed while they are used.
    pub(super) fn of(library: &libloading::Library) -> Result<Self, OpenError> {
        let find = |name: &CStr| {
            // SAFETY: the address is only looked up, and nothing is read from it.
            let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
            symbol.ok().and_then(|symbol| NonNull::new(*symbol))
        };
        // SAFETY: the library is CUDA's driver, and the caller does not close it.
        unsafe { Self::load(find) }.map_err(OpenError::Function)
    }
}
