//! The functions of `libcuda.so.1` that the programs call.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::CUDA_MEMCPY2D;

use super::OpenError;

/// A host function, as CUDA calls it.
pub(super) type HostFunction = unsafe extern "C" fn(*mut c_void);

macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        #[allow(non_snake_case, reason = "C's names")]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($kind),*) -> c_int,)*
        }

        impl Functions {
            pub(super) fn load(library: &libloading::Library) -> Result<Self, OpenError> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of CUDA's function of this name; handles and
                        // addresses are words.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($kind),*) -> c_int>(name) };
                        *symbol.map_err(|_| OpenError::Function(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut c_int, c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceGetAttribute(*mut c_int, c_uint, c_int);
    cuDevicePrimaryCtxRetain(*mut usize, c_int);
    cuCtxCreate_v2(*mut usize, c_uint, c_int);
    cuCtxSetCurrent(usize);
    cuCtxSynchronize();
    cuModuleLoadData(*mut usize, *const c_void);
    cuModuleGetFunction(*mut usize, usize, *const c_char);
    cuMemHostAlloc(*mut usize, usize, c_uint);
    cuMemFreeHost(usize);
    cuMemHostRegister_v2(usize, usize, c_uint);
    cuMemHostUnregister(usize);
    cuStreamCreate(*mut usize, c_uint);
    cuStreamDestroy_v2(usize);
    cuStreamSynchronize(usize);
    cuStreamQuery(usize);
    cuStreamWaitEvent(usize, usize, c_uint);
    cuEventCreate(*mut usize, c_uint);
    cuEventDestroy_v2(usize);
    cuEventRecord(usize, usize);
    cuEventSynchronize(usize);
    cuEventQuery(usize);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemFree_v2(u64);
    cuMemAllocAsync(*mut u64, usize, usize);
    cuMemFreeAsync(u64, usize);
    cuMemcpyHtoD_v2(u64, usize, usize);
    cuMemcpyDtoH_v2(usize, u64, usize);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpyHtoDAsync_v2(u64, usize, usize, usize);
    cuMemcpyDtoHAsync_v2(usize, u64, usize, usize);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, usize);
    cuMemcpy2DUnaligned_v2(*const CUDA_MEMCPY2D);
    cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, usize);
    cuMemcpyPeer(u64, usize, u64, usize, usize);
    cuMemcpyPeerAsync(u64, usize, u64, usize, usize, usize);
    cuMemsetD8_v2(u64, u8, usize);
    cuMemsetD16_v2(u64, u16, usize);
    cuMemsetD32_v2(u64, c_uint, usize);
    cuMemsetD2D32_v2(u64, usize, c_uint, usize, usize);
    cuMemsetD8Async(u64, u8, usize, usize);
    cuMemsetD16Async(u64, u16, usize, usize);
    cuMemsetD32Async(u64, c_uint, usize, usize);
    cuMemsetD2D32Async(u64, usize, c_uint, usize, usize, usize);
    cuLaunchKernel(
        usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, *mut *mut c_void, *mut *mut c_void
    );
    cuLaunchHostFunc(usize, HostFunction, *mut c_void);
    cuStreamBeginCapture_v2(usize, c_uint);
    cuStreamEndCapture(usize, *mut usize);
    cuGraphInstantiateWithFlags(*mut usize, usize, u64);
    cuGraphLaunch(usize, usize);
    cuGraphExecDestroy(usize);
    cuGraphDestroy(usize);
}
