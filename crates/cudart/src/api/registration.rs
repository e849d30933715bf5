//! What compiled programs call before `main`, and at their end. Nothing here touches the driver.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;

use penstock_cuda_sys::runtime::FatbinWrapper;
use penstock_cuda_sys::runtime_codes as code;

use crate::core::image::Image;
use crate::core::registry;
use crate::edge::unserved::{line, say_once};
use crate::edge::{entry, returning};

/// A name that the compiler wrote into the program.
///
/// # Safety
/// It is null or a string of C.
unsafe fn name<'a>(name: *const c_char) -> &'a CStr {
    if name.is_null() {
        return c"";
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }
}

/// Registers a fat binary; gives the handle for the functions below.
///
/// # Safety
/// `binary` is what the compiler made: a [`FatbinWrapper`] that stays until it is unregistered.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaRegisterFatBinary(binary: *const c_void) -> *mut *mut c_void {
    returning(std::ptr::null_mut(), || {
        let wrapper = binary.cast::<FatbinWrapper>();
        // SAFETY: as the caller promises.
        let found = (!wrapper.is_null()).then(|| unsafe { wrapper.read_unaligned() });
        let image = found.as_ref().and_then(Image::of);
        if image.is_none() {
            line(format_args!(
                "what the program registers as device code is none; its kernels cannot run"
            ));
        }
        std::ptr::from_ref(registry::add_binary(image)).cast_mut().cast()
    })
}

/// Nothing is left to do: a module is loaded when it is used.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// Unregisters a fat binary with all in it.
///
/// # Safety
/// `handle` is of [`__cudaRegisterFatBinary`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    returning((), || registry::remove(handle.cast()));
}

/// Registers a kernel.
///
/// # Safety
/// `handle` is of [`__cudaRegisterFatBinary`], and `device_name` a string of C.
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
            // SAFETY: as the caller promises.
            registry::add_kernel(binary, host.cast(), unsafe { name(device_name) });
        }
    });
}

/// Registers a variable of the device, or a constant.
///
/// # Safety
/// `handle` is of [`__cudaRegisterFatBinary`], and `device_name` a string of C.
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
            // SAFETY: as the caller promises.
            registry::add_variable(binary, host.cast(), unsafe { name(device_name) });
        }
    });
}

/// Registers a managed variable: its kernels find it, but the program has no memory of it of its own, which is said once.
///
/// # Safety
/// `handle` is of [`__cudaRegisterFatBinary`], and `device_name` a string of C.
#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments, reason = "C's name and shape")]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    static SAID: AtomicBool = AtomicBool::new(false);
    returning((), || {
        say_once(&SAID, "__managed__ (memory that host and device share)");
        if let Some(binary) = registry::binary(handle.cast()) {
            // SAFETY: as the caller promises.
            registry::add_variable(binary, host.cast(), unsafe { name(device_name) });
        }
    });
}

/// Whether the managed variables of a binary can be used: nothing is prepared, and 1 says that nothing is left to do.
///
/// # Safety
/// None is asked.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    1
}

/// Defines a function of compiled programs that is not served. Those that look at a result see that there is nothing.
macro_rules! refused {
    ($($(#[$attribute:meta])* fn $name:ident;)+) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// None is asked: no argument is looked at.
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
    /// Device code that reads variables of the host.
    fn __cudaRegisterHostVar;
    /// Tables of functions for host and device.
    fn __cudaRegisterUnifiedTable;
    /// Functions of the library by name.
    fn __cudaGetProcAddress;
}

entry! {
    /// The kernel of a function, as a handle for launches.
    fn cudaGetKernel(kernel: *mut *mut c_void, host: *const c_void) {
        if kernel.is_null() {
            return Err(crate::edge::RtError(code::INVALID_VALUE));
        }
        *kernel = registry::kernel(host)?.handle();
        Ok(())
    }
    /// Like `cudaGetKernel`, called by the code that the compiler makes of a launch.
    fn __cudaGetKernel(kernel: *mut *mut c_void, host: *const c_void) {
        if kernel.is_null() {
            return Err(crate::edge::RtError(code::INVALID_VALUE));
        }
        *kernel = registry::kernel(host)?.handle();
        Ok(())
    }
}
