//! CUDA's driver interface, loaded by name at run time.
#![allow(non_snake_case, reason = "names of a C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use penstock_cuda_sys::driver::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_MEMCPY3D, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUfunction, CUlaunchConfig, CUmodule, CUresult, CUstream, CUuuid,
};
use penstock_wire::cuda;
use penstock_wire::status::Status;

/// Name under which NVIDIA's driver installs its library.
const LIBRARY: &str = "libcuda.so.1";
/// Names another library. It is then used even if it is Penstock's own `libcuda.so.1`.
const LIBRARY_VARIABLE: &str = "PENSTOCK_LIBCUDA";
/// Symbol of Penstock's own `libcuda.so.1` only. A worker that used that would call itself for
/// ever.
const OUR_MARK: &CStr = c"penstock_libcuda";

macro_rules! functions {
    (needed { $($name:ident = $symbol:literal ($($type:ty),* $(,)?);)* }
     optional { $($newer:ident = $newer_symbol:literal ($($newer_type:ty),* $(,)?);)* }) => {
        /// The functions that this module calls. All return a code.
        pub(super) struct Cuda {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> CUresult,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($newer_type),*) -> CUresult>,)*
        }

        impl Cuda {
            /// Loads the functions; returns `None` if a needed one is missing.
            fn from(library: &libloading::Library) -> Option<Self> {
                Some(Self {
                    $($name: {
                        // SAFETY: CUDA defines this type for the function of this name.
                        *unsafe { library.get::<unsafe extern "C" fn($($type),*) -> CUresult>($symbol.as_bytes()) }.ok()?
                    },)*
                    $($newer: {
                        // SAFETY: as above.
                        unsafe { library.get::<unsafe extern "C" fn($($newer_type),*) -> CUresult>($newer_symbol.as_bytes()) }
                            .ok()
                            .map(|symbol| *symbol)
                    },)*
                })
            }
        }
    };
}

functions! {
    needed {
        cuInit = "cuInit" (c_uint);
        cuDriverGetVersion = "cuDriverGetVersion" (*mut c_int);
        cuDeviceGetCount = "cuDeviceGetCount" (*mut c_int);
        cuDeviceGet = "cuDeviceGet" (*mut CUdevice, c_int);
        cuDeviceGetName = "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
        cuDeviceGetAttribute = "cuDeviceGetAttribute" (*mut c_int, c_uint, CUdevice);
        cuDeviceTotalMem = "cuDeviceTotalMem_v2" (*mut usize, CUdevice);
        cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId" (*mut c_char, c_int, CUdevice);
        cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
        cuCtxSetCurrent = "cuCtxSetCurrent" (CUcontext);
        cuCtxSynchronize = "cuCtxSynchronize" ();
        cuStreamCreate = "cuStreamCreate" (*mut CUstream, c_uint);
        cuStreamDestroy = "cuStreamDestroy_v2" (CUstream);
        cuStreamSynchronize = "cuStreamSynchronize" (CUstream);
        cuStreamWaitEvent = "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
        cuEventCreate = "cuEventCreate" (*mut CUevent, c_uint);
        cuEventRecord = "cuEventRecord" (CUevent, CUstream);
        cuEventQuery = "cuEventQuery" (CUevent);
        cuEventSynchronize = "cuEventSynchronize" (CUevent);
        cuEventElapsedTime = "cuEventElapsedTime" (*mut f32, CUevent, CUevent);
        cuMemAlloc = "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
        cuMemFree = "cuMemFree_v2" (CUdeviceptr);
        cuMemHostAlloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        cuMemHostRegister = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
        cuMemHostUnregister = "cuMemHostUnregister" (*mut c_void);
        cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpy3DAsync = "cuMemcpy3DAsync_v2" (*const CUDA_MEMCPY3D, CUstream);
        cuMemsetD8Async = "cuMemsetD8Async" (CUdeviceptr, u8, usize, CUstream);
        cuMemsetD16Async = "cuMemsetD16Async" (CUdeviceptr, u16, usize, CUstream);
        cuMemsetD32Async = "cuMemsetD32Async" (CUdeviceptr, c_uint, usize, CUstream);
        cuModuleLoadDataEx = "cuModuleLoadDataEx" (*mut CUmodule, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
        cuModuleUnload = "cuModuleUnload" (CUmodule);
        cuModuleGetFunction = "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
        cuModuleGetGlobal = "cuModuleGetGlobal_v2" (*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
        cuFuncGetAttribute = "cuFuncGetAttribute" (*mut c_int, c_uint, CUfunction);
        cuFuncSetAttribute = "cuFuncSetAttribute" (CUfunction, c_uint, c_int);
        cuLaunchKernel = "cuLaunchKernel" (
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void,
        );
    }
    optional {
        cuDeviceGetUuid = "cuDeviceGetUuid" (*mut CUuuid, CUdevice);
        cuDeviceGetUuid_v2 = "cuDeviceGetUuid_v2" (*mut CUuuid, CUdevice);
        cuFuncGetParamInfo = "cuFuncGetParamInfo" (CUfunction, usize, *mut usize, *mut usize);
        cuFuncGetName = "cuFuncGetName" (*mut *const c_char, CUfunction);
        cuLaunchKernelEx = "cuLaunchKernelEx" (*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
        cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2" (*mut CUdeviceptr, *mut c_void, c_uint);
        cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor" (
            *mut c_int, CUfunction, c_int, usize,
        );
        cuModuleGetFunctionCount = "cuModuleGetFunctionCount" (*mut c_uint, CUmodule);
        cuModuleEnumerateFunctions = "cuModuleEnumerateFunctions" (*mut CUfunction, c_uint, CUmodule);
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").finish_non_exhaustive()
    }
}

static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();

/// Returns the driver if there is one and it starts. It stays open for the life of the process.
pub(super) fn cuda() -> Option<&'static Cuda> {
    CUDA.get_or_init(open).as_ref()
}

fn open() -> Option<Cuda> {
    let named = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
    let path = named.as_deref().unwrap_or(LIBRARY);
    // SAFETY: the library's constructors run here. Whoever installed it allows that.
    let opened = unsafe { libloading::Library::new(path) };
    if let (Err(error), Some(path)) = (&opened, &named) {
        // Most machines have no driver, which is no news; but the user named this one.
        eprintln!("penstock: {LIBRARY_VARIABLE}={path}: {error}");
    }
    let library = opened.ok()?;
    // SAFETY: the symbol is only looked up, never used.
    let is_ours = unsafe { library.get::<*const c_void>(OUR_MARK.to_bytes_with_nul()) }.is_ok();
    let found = if is_ours && named.is_none() { None } else { Cuda::from(&library) };
    // The driver keeps threads running, so its code must stay loaded.
    std::mem::forget(library);
    let cuda = found?;
    // SAFETY: called before any other function; without a GPU it returns an error.
    check(unsafe { (cuda.cuInit)(0) }).ok()?;
    Some(cuda)
}

/// Translates a code. A lack of memory becomes OpenCL's code; other errors keep CUDA's number.
pub(super) fn check(code: CUresult) -> Result<(), Status> {
    match code {
        CUDA_SUCCESS => Ok(()),
        CUDA_ERROR_OUT_OF_MEMORY => Err(Status::MEM_OBJECT_ALLOCATION_FAILURE),
        CUresult(code) => Err(cuda::status(code)),
    }
}

/// Converts a name for a call; fails if it contains a NUL.
pub(super) fn c_name(name: &str) -> Result<CString, Status> {
    CString::new(name).map_err(|_| Status::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use penstock_cuda_sys::driver::CUDA_ERROR_ILLEGAL_ADDRESS;

    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        assert_eq!(check(CUDA_SUCCESS), Ok(()));
        assert_eq!(check(CUDA_ERROR_OUT_OF_MEMORY), Err(Status::MEM_OBJECT_ALLOCATION_FAILURE));
        let illegal = check(CUDA_ERROR_ILLEGAL_ADDRESS).unwrap_err();
        assert_eq!(cuda::code(illegal), Some(CUDA_ERROR_ILLEGAL_ADDRESS.0));
        assert!(check(CUresult(u32::MAX)).is_err());
    }
}
