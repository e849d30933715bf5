//! The libraries as programs use them: linked by `tools/cuda/link.sh`, beside the stand-in driver.

#![allow(dead_code, reason = "each test uses a part")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{MutexGuard, OnceLock};
use std::time::SystemTime;

use penstock_cuda_sys::runtime::{FATBIN_WRAPPER_MAGIC, FatbinWrapper};
use penstock_process::Lock;

/// Needed to link the tests with the crate. The libraries have their own.
#[unsafe(no_mangle)]
static penstock_cudart_major: c_int = 13;

/// A loaded shared library.
#[derive(Clone, Copy)]
pub struct Library(usize);

impl Library {
    pub fn open(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the library is ours and runs no code when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: after a failure, `dlerror` returns a message.
        assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        Self(handle.expose_provenance())
    }

    pub fn symbol(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is open, and the name is a C string.
        let found =
            unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(self.0), name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is not exported");
        found
    }
}

/// Calls a function that returns an error code, for example `call!(library, cudaMalloc(&raw mut
/// memory => *mut u64, 16 => usize))`.
#[macro_export]
macro_rules! call {
    ($library:expr, $name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> ::std::ffi::c_int;
        let address = $library.symbol(stringify!($name));
        // SAFETY: the function of this name has this signature, and the caller follows its rules.
        unsafe { ::std::mem::transmute::<*mut ::std::ffi::c_void, Function>(address)($($value),*) }
    }};
}

/// Returns a folder for this process's files. The next run of the same tests removes it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = std::env::current_exe().unwrap().file_stem().unwrap().to_owned();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Returns the crate's newest archive, which is beside the tests or one folder up.
pub fn archive(crate_name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let places = tests.ancestors().skip(1).take(2).filter_map(|folder| fs::read_dir(folder).ok());
    let made = |path: &PathBuf| {
        fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    places
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let rest = name.strip_prefix(crate_name);
            rest.is_some_and(|rest| rest == ".a" || (rest.starts_with('-') && rest.ends_with(".a")))
        })
        .max_by_key(made)
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Links the libraries and returns their folder.
pub fn link() -> &'static Path {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    LINKED.get_or_init(|| {
        let archive = archive("libpenstock_cudart").expect("the archive is built with its tests");
        fs::copy(archive, folder().join("libpenstock_cudart.a")).unwrap();
        run(Command::new(root().join("tools/cuda/link.sh")).arg(folder()).arg("runtime"));
        folder().join("cuda")
    })
}

/// Compiles the stand-in driver into a folder.
pub fn stand_in(folder: &Path) -> PathBuf {
    let path = folder.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/libcuda.c");
    let options = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        "-o",
    ];
    run(Command::new("cc").args(options).arg(&path).arg(source).arg("-lpthread"));
    path
}

/// One runtime and the stand-in driver, for one test at a time. Both devices are reset.
pub struct Setting {
    pub runtime: Library,
    pub driver: Library,
    _turn: MutexGuard<'static, ()>,
}

pub fn setting(major: c_int) -> Setting {
    static LIBRARIES: OnceLock<[Library; 3]> = OnceLock::new();
    static TURN: Lock<()> = Lock::new(());
    let turn = TURN.lock();
    let libraries = LIBRARIES.get_or_init(|| {
        let folder = link();
        let driver = stand_in(folder);
        [
            Library::open(&folder.join("libcudart.so.12")),
            Library::open(&folder.join("libcudart.so.13")),
            Library::open(&driver),
        ]
    });
    let [twelve, thirteen, driver] = *libraries;
    let runtime = if major == 12 { twelve } else { thirteen };
    for device in [1, 0] {
        assert_eq!(call!(runtime, cudaSetDevice(device => c_int)), 0);
        assert_eq!(call!(runtime, cudaDeviceReset()), 0);
    }
    call!(runtime, cudaGetLastError());
    let setting = Setting { runtime, driver, _turn: turn };
    setting.calls();
    setting
}

impl Setting {
    /// Returns the driver's calls since the last time that this function was called.
    pub fn calls(&self) -> Vec<String> {
        type Function = extern "C" fn() -> *const c_char;
        // SAFETY: the function has this signature.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, Function>(self.driver.symbol("standin_calls"))
        };
        // SAFETY: the text is valid until the next call of the function.
        let text = unsafe { CStr::from_ptr(function()) };
        text.to_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// Returns the name of an error code.
    pub fn name(&self, code: c_int) -> String {
        type Function = extern "C" fn(c_int) -> *const c_char;
        // SAFETY: the function has this signature.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, Function>(self.runtime.symbol("cudaGetErrorName"))
        };
        // SAFETY: the function returns a C string that is never freed.
        unsafe { CStr::from_ptr(function(code)) }.to_str().unwrap().to_owned()
    }

    /// Registers a binary for the stand-in driver and returns its handle.
    pub fn register(&self, image: &'static CStr) -> *mut *mut c_void {
        let (magic, version, data, linked) =
            (FATBIN_WRAPPER_MAGIC, 1, image.as_ptr().cast(), std::ptr::null());
        self.register_wrapper(FatbinWrapper { magic, version, data, linked })
    }

    /// Registers a binary and returns its handle.
    pub fn register_wrapper(&self, wrapper: FatbinWrapper) -> *mut *mut c_void {
        type Function = unsafe extern "C" fn(*const c_void) -> *mut *mut c_void;
        let wrapper: &'static FatbinWrapper = Box::leak(Box::new(wrapper));
        let register = self.runtime.symbol("__cudaRegisterFatBinary");
        // SAFETY: the function has this signature, and the wrapper is never freed.
        unsafe {
            let function = std::mem::transmute::<*mut c_void, Function>(register);
            function(std::ptr::from_ref(wrapper).cast())
        }
    }

    /// Registers a kernel. The address of `host` stands for its host function.
    pub fn kernel(
        &self,
        binary: *mut *mut c_void,
        host: &'static u8,
        name: &'static CStr,
    ) -> *const c_void {
        let host = std::ptr::from_ref(host).cast::<c_void>();
        let (null, none) = (std::ptr::null_mut::<c_void>(), -1);
        call!(self.runtime, __cudaRegisterFunction(
            binary => *mut *mut c_void, host => *const c_void, null => *mut c_void, name.as_ptr() => *const c_char, none => c_int,
            null => *mut c_void, null => *mut c_void, null => *mut c_void, null => *mut c_void, null => *mut c_void,
        ));
        host
    }
}

/// Directions of copies, as in `cudaMemcpyKind`.
pub const TO_DEVICE: c_int = 1;
pub const TO_HOST: c_int = 2;
pub const WITHIN: c_int = 3;
pub const DEFAULT: c_int = 4;

pub type Pointer = *mut c_void;

/// Allocates memory of the current device.
pub fn memory(setting: &Setting, bytes: usize) -> Pointer {
    let mut made: Pointer = std::ptr::null_mut();
    assert_eq!(
        call!(setting.runtime, cudaMalloc(&raw mut made => *mut Pointer, bytes => usize)),
        0
    );
    made
}

pub fn copy(setting: &Setting, to: Pointer, from: Pointer, bytes: usize, kind: c_int) -> c_int {
    call!(setting.runtime, cudaMemcpy(to => Pointer, from => Pointer, bytes => usize, kind => c_int))
}

/// Returns and forgets the thread's last error.
pub fn last(setting: &Setting) -> c_int {
    call!(setting.runtime, cudaGetLastError())
}
