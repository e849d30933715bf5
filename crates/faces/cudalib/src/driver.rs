//! The functions of `libcuda.so.1` that the libraries use, found at run time.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use penstock_cuda_sys::driver::*;

/// An operand of a call, as `penstockLibraryCall` takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operand {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Not 0 if the call writes it.
    pub(crate) is_written: u64,
}

type LibraryCall =
    unsafe extern "C" fn(CUstream, *const c_void, usize, *const Operand, usize, c_uint) -> CUresult;
type LibraryCheck = unsafe extern "C" fn(CUstream, *const Operand, usize) -> CUresult;

penstock_cuda_sys::driver_table! {
    /// Functions of CUDA.
    #[derive(Debug)]
    pub(crate) struct Functions {
        needed {
            cuInit, cuCtxGetCurrent, cuCtxSetCurrent, cuDeviceGet, cuDevicePrimaryCtxRetain,
            cuMemAlloc_v2, cuMemFree_v2, cuMemcpyDtoHAsync_v2, cuMemcpy2DUnaligned_v2,
            cuMemcpy2DAsync_v2, cuStreamSynchronize,
        }
    }
}

/// The driver of this process.
pub(crate) struct Driver {
    pub(crate) functions: Functions,
    /// `None` if the driver is not Penstock's.
    call: Option<LibraryCall>,
    check: Option<LibraryCheck>,
    support: Option<unsafe extern "C" fn(*mut u64) -> CUresult>,
}

const NAME: &str = "libcuda.so.1";

/// Returns the driver, which the first call opens and initialises.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(open).as_ref()
}

fn open() -> Option<Driver> {
    // The loader finds the driver that the program has, or the one beside this library: the
    // library is linked with the path of its own folder.
    // SAFETY: the constructors of the driver run as in every program that is linked with it.
    let library = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_LOCAL) }.ok()?;
    let library: &'static Library = Box::leak(Box::new(library));
    let find = |name: &CStr| -> Option<NonNull<c_void>> {
        // SAFETY: only the address of the symbol is taken.
        let found = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        NonNull::new(found.into_raw())
    };
    // SAFETY: the library is the driver, and it is never closed.
    let functions = unsafe { Functions::load(find) }.ok()?;
    // SAFETY: the flags are zero, as the interface requires.
    if unsafe { (functions.cuInit)(0) } != CUDA_SUCCESS {
        return None;
    }
    // SAFETY: the function of this name has this type.
    let call = unsafe { library.get::<LibraryCall>(b"penstockLibraryCall\0") };
    // SAFETY: as above.
    let check = unsafe { library.get::<LibraryCheck>(b"penstockLibraryCheck\0") };
    // SAFETY: as above.
    let support = unsafe {
        library.get::<unsafe extern "C" fn(*mut u64) -> CUresult>(b"penstockLibrarySupport\0")
    };
    let (call, check) = (call.ok().map(|it| *it), check.ok().map(|it| *it));
    Some(Driver { functions, call, check, support: support.ok().map(|it| *it) })
}

impl Driver {
    /// Returns the current context, or makes the primary context of the first device current.
    pub(crate) fn context(&self) -> Result<CUcontext, CUresult> {
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write of the answer.
        good(unsafe { (self.functions.cuCtxGetCurrent)(&raw mut context) })?;
        if !context.is_null() {
            return Ok(context);
        }
        let mut device = 0;
        // SAFETY: as above.
        good(unsafe { (self.functions.cuDeviceGet)(&raw mut device, 0) })?;
        // SAFETY: as above; the device is the driver's.
        good(unsafe { (self.functions.cuDevicePrimaryCtxRetain)(&raw mut context, device) })?;
        self.use_context(context)?;
        Ok(context)
    }

    pub(crate) fn use_context(&self, context: CUcontext) -> Result<(), CUresult> {
        // SAFETY: the context is the driver's; the driver checks the handle.
        good(unsafe { (self.functions.cuCtxSetCurrent)(context) })
    }

    /// Returns the bits of `penstock_wire::library::Libraries` for the current context.
    pub(crate) fn support(&self) -> u64 {
        let mut served = 0;
        let Some(support) = self.support else { return 0 };
        // SAFETY: the pointer is valid for a write of the answer.
        match unsafe { support(&raw mut served) } {
            CUDA_SUCCESS => served,
            _ => 0,
        }
    }

    /// Checks the operands of a call as [`Driver::call`] does.
    pub(crate) fn check(&self, stream: CUstream, operands: &[Operand]) -> Result<(), CUresult> {
        let function = self.check.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: the list has the given length; the driver checks stream and addresses.
        good(unsafe { function(stream, operands.as_ptr(), operands.len()) })
    }

    /// Enqueues a call of a library.
    pub(crate) fn call(
        &self,
        stream: CUstream,
        call: &[u8],
        operands: &[Operand],
        follows_addresses: bool,
    ) -> Result<(), CUresult> {
        let function = self.call.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: both lists have the given lengths; the driver checks stream and addresses.
        good(unsafe {
            function(
                stream,
                call.as_ptr().cast(),
                call.len(),
                operands.as_ptr(),
                operands.len(),
                c_uint::from(follows_addresses),
            )
        })
    }
}

pub(crate) fn good(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}
