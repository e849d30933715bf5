//! CUDA's driver interface, loaded by name at run time.
#![allow(non_snake_case, reason = "names of a C interface")]

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cuda_sys::driver::{
    CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult,
};
use penstock_process::{notice, variable};
use penstock_wire::cuda;
use penstock_wire::status::Status;

/// Name under which NVIDIA's driver installs its library. If the user names another one, that is
/// used even if it is Penstock's own `libcuda.so.1`.
const LIBRARY: &str = "libcuda.so.1";
/// Symbol of Penstock's own `libcuda.so.1` only. A worker that used that would call itself for
/// ever.
const OUR_MARK: &CStr = c"penstock_libcuda";

penstock_cuda_sys::driver_table! {
    /// The functions that this module calls. All return a code.
    pub(super) struct Cuda {
        needed {
            cuInit, cuDriverGetVersion, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName,
            cuDeviceGetAttribute, cuDeviceTotalMem = cuDeviceTotalMem_v2, cuDeviceGetPCIBusId,
            cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuCtxSynchronize, cuStreamCreate,
            cuStreamDestroy = cuStreamDestroy_v2, cuStreamSynchronize, cuStreamWaitEvent,
            cuEventCreate, cuEventRecord, cuEventQuery, cuEventSynchronize, cuEventElapsedTime,
            cuMemAlloc = cuMemAlloc_v2, cuMemFree = cuMemFree_v2, cuMemHostAlloc,
            cuMemHostRegister = cuMemHostRegister_v2, cuMemHostUnregister,
            cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2,
            cuMemcpyDtoDAsync = cuMemcpyDtoDAsync_v2, cuMemcpy3DAsync = cuMemcpy3DAsync_v2,
            cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuModuleLoadDataEx, cuModuleUnload,
            cuModuleGetFunction, cuModuleGetGlobal = cuModuleGetGlobal_v2, cuFuncGetAttribute,
            cuFuncSetAttribute, cuLaunchKernel,
        }
        optional {
            cuDeviceGetUuid, cuDeviceGetUuid_v2, cuFuncGetParamInfo, cuFuncGetName,
            cuLaunchKernelEx,
            cuMemHostGetDevicePointer = cuMemHostGetDevicePointer_v2,
            cuOccupancyMaxActiveBlocksPerMultiprocessor, cuModuleGetFunctionCount,
            cuModuleEnumerateFunctions,
        }
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").finish_non_exhaustive()
    }
}

static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
/// Whether the driver is Penstock's own library.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Returns the driver if there is one and it starts. It stays open for the life of the process.
pub(super) fn cuda() -> Option<&'static Cuda> {
    CUDA.get_or_init(open).as_ref()
}

/// Returns whether the driver is Penstock's own library.
pub(super) fn is_ours() -> bool {
    IS_OURS.load(Ordering::Relaxed)
}

fn open() -> Option<Cuda> {
    let named = variable::LIBCUDA.path();
    let path = named.as_deref().unwrap_or(Path::new(LIBRARY));
    // SAFETY: the library's constructors run here. Whoever installed it allows that.
    let opened = unsafe { libloading::Library::new(path) };
    if let (Err(error), Some(path)) = (&opened, &named) {
        // Most machines have no driver, which is no news; but the user named this one.
        notice::print(format_args!("{}={}: {error}", variable::LIBCUDA.name, path.display()));
    }
    let library = opened.ok()?;
    let find = |name: &CStr| {
        // SAFETY: the address is only looked up, and nothing is read from it.
        let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
        symbol.ok().and_then(|symbol| NonNull::new(*symbol))
    };
    let is_ours = find(OUR_MARK).is_some();
    IS_OURS.store(is_ours, Ordering::Relaxed);
    let is_usable = !is_ours || named.is_some();
    // SAFETY: the library with this name has CUDA's driver interface, and it is never closed.
    let found = is_usable.then(|| unsafe { Cuda::load(find) }.ok()).flatten();
    // The driver keeps threads running, so its code must stay loaded.
    std::mem::forget(library);
    let cuda = found?;
    // SAFETY: called before any other function; without a GPU it returns an error.
    let code = unsafe { (cuda.cuInit)(0) };
    if code != CUDA_SUCCESS && code != CUDA_ERROR_NO_DEVICE {
        let name = code.entry().map_or("an unknown code".into(), |it| it.name.to_string_lossy());
        notice::print(format_args!("CUDA's driver does not start: {name} ({})", code.0));
    }
    (code == CUDA_SUCCESS).then_some(cuda)
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

/// Returns the text before the first NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Returns the result of `cuDriverGetVersion`, or 0 if that fails.
pub(super) fn driver_version(cuda: &Cuda) -> i32 {
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    check(unsafe { (cuda.cuDriverGetVersion)(&mut version) }).map_or(0, |()| version)
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
