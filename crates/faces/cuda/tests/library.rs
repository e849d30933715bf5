//! The shared library as a loader sees it: its symbols, and its behaviour without a pool.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;

use penstock_cuda::api::table::{refused, symbols};
use penstock_cuda_sys::driver::*;

struct Library(*mut c_void);

impl Library {
    fn open() -> Self {
        // Next to the tests in target/PROFILE/deps, or one folder above.
        let tests = std::env::current_exe().unwrap();
        let mut places =
            tests.ancestors().skip(1).take(2).map(|folder| folder.join("libpenstock_cuda.so"));
        let path = places.find(|path| path.exists()).expect("the library is built with its tests");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: our own library runs no code when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        Self(library)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is open.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

// One test, because it sets a variable of the environment.
#[test]
fn a_program_without_a_pool_is_served_too() {
    // SAFETY: only this thread reads the environment.
    unsafe { std::env::set_var("PENSTOCK_NODES", "none") };
    let library = Library::open();
    for (name, _) in symbols() {
        assert!(!library.symbol(&CString::new(name).unwrap()).is_null(), "{name}");
    }
    for name in refused() {
        let function = library.symbol(&CString::new(name).unwrap());
        // SAFETY: functions that are not served look at no arguments.
        let function: unsafe extern "C" fn() -> CUresult = unsafe { std::mem::transmute(function) };
        // SAFETY: the function looks at no arguments.
        assert_eq!(unsafe { function() }, CUDA_ERROR_NOT_SUPPORTED, "{name}");
    }
    let init = library.symbol(c"cuInit");
    // SAFETY: `cuInit` has this type.
    let init: unsafe extern "C" fn(u32) -> CUresult = unsafe { std::mem::transmute(init) };
    let count = library.symbol(c"cuDeviceGetCount");
    // SAFETY: `cuDeviceGetCount` has this type.
    let count: unsafe extern "C" fn(*mut c_int) -> CUresult = unsafe { std::mem::transmute(count) };
    let synchronize = library.symbol(c"cuCtxSynchronize");
    // SAFETY: `cuCtxSynchronize` has this type.
    let synchronize: unsafe extern "C" fn() -> CUresult =
        unsafe { std::mem::transmute(synchronize) };
    let mut devices = 7;
    // SAFETY: the result goes to a local variable.
    unsafe {
        assert_eq!(count(&raw mut devices), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(init(1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(init(0), CUDA_ERROR_NO_DEVICE);
        assert_eq!(init(0), CUDA_ERROR_NO_DEVICE);
        assert_eq!(count(&raw mut devices), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(synchronize(), CUDA_ERROR_NOT_INITIALIZED);
    }
    garbage_is_no_handle(&library);
}

fn garbage_is_no_handle(library: &Library) {
    for (name, code) in [
        (c"cuModuleUnload", CUDA_ERROR_INVALID_CONTEXT),
        (c"cuEventQuery", CUDA_ERROR_INVALID_HANDLE),
        (c"cuArrayDestroy", CUDA_ERROR_INVALID_HANDLE),
        (c"cuLinkDestroy", CUDA_ERROR_INVALID_HANDLE),
        (c"cuStreamQuery", CUDA_ERROR_INVALID_HANDLE),
        (c"cuCtxPushCurrent_v2", CUDA_ERROR_INVALID_CONTEXT),
    ] {
        let function = library.symbol(name);
        // SAFETY: each of these functions takes one handle.
        let function: unsafe extern "C" fn(*mut c_void) -> CUresult =
            unsafe { std::mem::transmute(function) };
        for garbage in [8usize, 0xdead_0000, usize::MAX] {
            let handle: *mut c_void = std::ptr::without_provenance_mut(garbage);
            // SAFETY: invalid handles are recognised and never followed.
            let got = unsafe { function(handle) };
            // Functions that need a context first fail without one.
            assert!(
                got == code || got == CUDA_ERROR_NOT_INITIALIZED,
                "{name:?} {garbage:#x}: {got:?}"
            );
        }
        // SAFETY: invalid handles are recognised and never followed.
        assert_ne!(unsafe { function(null_mut()) }, CUDA_SUCCESS, "{name:?}");
    }
}
