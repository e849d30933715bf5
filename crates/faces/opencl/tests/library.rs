//! The shared library as seen by a loader: symbols, functions by name, and no pool.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;

use penstock_cl_sys::*;

struct Library(*mut c_void);

impl Library {
    fn open() -> Self {
        // The library lies beside the tests in target/PROFILE/deps, or one folder up.
        let tests = std::env::current_exe().unwrap();
        let places =
            tests.ancestors().skip(1).take(2).map(|folder| folder.join("libpenstock_opencl.so"));
        let path: PathBuf = places
            .into_iter()
            .find(|path| path.exists())
            .expect("the library is built with its tests");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: our own library, which runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        Self(library)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is open.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    fn by_name(&self, name: &CStr) -> *mut c_void {
        let get = self.symbol(c"clGetExtensionFunctionAddress");
        // SAFETY: the function has this type.
        let get: unsafe extern "C" fn(*const c_char) -> *mut c_void =
            unsafe { std::mem::transmute(get) };
        // SAFETY: a string.
        unsafe { get(name.as_ptr()) }
    }
}

// One test, because it sets an environment variable.
#[test]
fn a_loader_is_served() {
    // SAFETY: only this thread reads the environment.
    unsafe { std::env::set_var("PENSTOCK_NODES", "none") };
    let library = Library::open();
    the_loader_finds_what_it_needs(&library);
    without_a_pool_there_is_no_platform(&library);
}

fn the_loader_finds_what_it_needs(library: &Library) {
    for name in [
        c"clGetExtensionFunctionAddress",
        c"clIcdGetPlatformIDsKHR",
        c"clGetPlatformInfo",
        c"clIcdGetFunctionAddressForPlatformKHR",
        c"clIcdSetPlatformDispatchDataKHR",
    ] {
        // Must not be the function of the same name in a loader that this program may have.
        assert_eq!(library.symbol(name), library.by_name(name), "{name:?}");
        assert!(!library.symbol(name).is_null(), "{name:?}");
    }
    for (name, _) in CORE_FUNCTIONS {
        assert!(!library.by_name(&CString::new(*name).unwrap()).is_null(), "{name}");
    }
    assert!(library.by_name(c"clNoSuchFunction").is_null());
    // A program must not get our functions instead of the loader's.
    assert!(library.symbol(c"clCreateContext").is_null());
}

fn without_a_pool_there_is_no_platform(library: &Library) {
    let get = library.symbol(c"clIcdGetPlatformIDsKHR");
    // SAFETY: the function has this type.
    let get: unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int =
        unsafe { std::mem::transmute(get) };
    let mut count = 77;
    // SAFETY: a place for the number.
    assert_eq!(unsafe { get(0, std::ptr::null_mut(), &raw mut count) }, CL_PLATFORM_NOT_FOUND_KHR);
    assert_eq!(count, 0);
    // SAFETY: both pointers are null, which is an error.
    assert_eq!(unsafe { get(0, std::ptr::null_mut(), std::ptr::null_mut()) }, CL_INVALID_VALUE);
    let info = library.by_name(c"clGetDeviceInfo");
    // SAFETY: the function has this type.
    let info: unsafe extern "C" fn(
        cl_device_id,
        cl_device_info,
        usize,
        *mut c_void,
        *mut usize,
    ) -> cl_int = unsafe { std::mem::transmute(info) };
    for garbage in [0, 1, 0xdead_0000, usize::MAX] {
        let device = std::ptr::without_provenance_mut(garbage);
        // SAFETY: nothing is read through an invalid handle.
        let code =
            unsafe { info(device, CL_DEVICE_NAME, 0, std::ptr::null_mut(), std::ptr::null_mut()) };
        assert_eq!(code, CL_INVALID_DEVICE);
    }
}
