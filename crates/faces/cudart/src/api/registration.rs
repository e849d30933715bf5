//! Functions that compiled programs call before `main` and at exit. None of them uses the driver
//! before the program does.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;

use penstock_cuda_sys::runtime::FatbinWrapper;
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::current;
use crate::core::image::Image;
use crate::core::registry::{self, ManagedPlace};
use crate::edge::unserved::{line, say_once};
use crate::edge::{entry, returning};

/// Reads a name that the compiler wrote into the program. A null pointer yields an empty name.
///
/// # Safety
/// `name` is null or a C string that is never freed.
unsafe fn name<'a>(name: *const c_char) -> &'a CStr {
    if name.is_null() {
        return c"";
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { CStr::from_ptr(name) }
}

/// Registers a fat binary and returns its handle for the functions below.
///
/// # Safety
/// `binary` is a [`FatbinWrapper`] of the compiler's that stays valid until it is unregistered.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaRegisterFatBinary(binary: *const c_void) -> *mut *mut c_void {
    returning(std::ptr::null_mut(), || {
        let wrapper = binary.cast::<FatbinWrapper>();
        // SAFETY: the caller upholds the contract of this function.
        let found = (!wrapper.is_null()).then(|| unsafe { wrapper.read_unaligned() });
        let image = found.as_ref().and_then(Image::of);
        if image.is_none() {
            line(format_args!(
                "the program registered something that is not device code; its kernels cannot run"
            ));
        }
        std::ptr::from_ref(registry::add_binary(image)).cast_mut().cast()
    })
}

/// Does nothing, because a module is loaded when it is first used.
///
/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// Unregisters a fat binary and everything in it.
///
/// # Safety
/// `handle` comes from [`__cudaRegisterFatBinary`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    returning((), || registry::remove(handle.cast()));
}

/// Registers a kernel.
///
/// # Safety
/// `handle` comes from [`__cudaRegisterFatBinary`], and `device_name` is null or a C string.
#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
pub unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_char,
    _device: *mut c_char,
    device_name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp_size: *mut c_int,
) {
    returning((), || {
        if let Some(binary) = registry::binary(handle.cast()) {
            // SAFETY: the caller upholds the contract of this function.
            registry::add_kernel(binary, host.cast(), unsafe { name(device_name) });
        }
    });
}

/// Registers a device variable or constant.
///
/// # Safety
/// `handle` comes from [`__cudaRegisterFatBinary`], and `device_name` is null or a C string.
#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
pub unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_char,
    _device: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    returning((), || {
        if let Some(binary) = registry::binary(handle.cast()) {
            // SAFETY: the caller upholds the contract of this function.
            registry::add_variable(binary, host.cast(), unsafe { name(device_name) }, None);
        }
    });
}

/// Registers a managed variable. `host` is the program's pointer to it.
///
/// # Safety
/// `handle` comes from [`__cudaRegisterFatBinary`], and `device_name` is null or a C string. `host`
/// stays valid until the binary is unregistered.
#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    returning((), || {
        if let Some(binary) = registry::binary(handle.cast()) {
            let place = ManagedPlace { pointer: host.expose_provenance(), bytes };
            // SAFETY: the caller upholds the contract of this function.
            let name = unsafe { name(device_name) };
            registry::add_variable(binary, host.cast(), name, Some(place));
        }
    });
}

/// Prepares the managed variables of a binary. The code that the compiler makes calls it before the
/// host uses such a variable, until it returns something other than 0.
///
/// # Safety
/// `handle` comes from [`__cudaRegisterFatBinary`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaInitModule(handle: *mut *mut c_void) -> c_char {
    returning(0, || {
        let Some(binary) = registry::binary(handle.cast()) else { return 0 };
        match binary.show_managed(current()) {
            Ok(()) => 1,
            Err(error) => {
                error.keep();
                0
            }
        }
    })
}

/// Defines functions of compiled programs that are not served. Each reports its first call.
macro_rules! refused {
    ($($(#[$attribute:meta])* fn $name:ident;)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// Safe with any argument, because no argument is read.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name() -> *mut c_void {
            static SAID: AtomicBool = AtomicBool::new(false);
            returning((), || say_once(&SAID, stringify!($name)));
            std::ptr::null_mut()
        }
    )+};
}

refused! {
    /// For device code that reads host variables.
    fn __cudaRegisterHostVar;
    /// For tables of host and device functions.
    fn __cudaRegisterUnifiedTable;
    /// For lookup of the library's functions by name.
    fn __cudaGetProcAddress;
}

entry! {
    /// Returns a host function's kernel as a handle for launches.
    fn cudaGetKernel(kernel: *mut *mut c_void, host: *const c_void) {
        if kernel.is_null() {
            return Err(crate::edge::RtError(code::INVALID_VALUE));
        }
        *kernel = registry::kernel(host)?.handle();
        Ok(())
    }
    /// Like `cudaGetKernel`. Called by the code that the compiler generates for a launch.
    fn __cudaGetKernel(kernel: *mut *mut c_void, host: *const c_void) {
        if kernel.is_null() {
            return Err(crate::edge::RtError(code::INVALID_VALUE));
        }
        *kernel = registry::kernel(host)?.handle();
        Ok(())
    }
}
