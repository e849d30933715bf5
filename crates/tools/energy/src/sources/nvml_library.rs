//! NVIDIA's management library, opened at run time. Only this module knows its C interface.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::reason::Reason;

/// Name of the library for the dynamic loader, which is tried first.
const NAME: &str = "libnvidia-ml.so.1";
/// Directories in which drivers install the library, in case the loader finds Penstock's own first.
const DIRECTORIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];
/// A symbol that only Penstock's library of this name has.
const OWN: &[u8] = b"penstock_nvml\0";
/// Value of NVML's `NVML_DEVICE_NAME_V2_BUFFER_SIZE`.
const DEVICE_NAME_SIZE: usize = 96;
/// Value of NVML's `NVML_FI_DEV_POWER_INSTANT`.
const POWER_INSTANT: c_uint = 186;
/// Value of NVML's `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: c_uint = 1;

type Code = c_uint;
/// Values of NVML's `nvmlReturn_t`.
pub(super) mod code {
    pub(in super::super) const SUCCESS: u32 = 0;
    pub(in super::super) const NOT_SUPPORTED: u32 = 3;
    pub(in super::super) const NO_PERMISSION: u32 = 4;
    pub(in super::super) const FUNCTION_NOT_FOUND: u32 = 13;
}

type Handle = *mut c_void;
type Init = unsafe extern "C" fn() -> Code;
type Count = unsafe extern "C" fn(*mut c_uint) -> Code;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> Code;
type Name = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Code;
type Energy = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Code;
type Power = unsafe extern "C" fn(Handle, *mut c_uint) -> Code;
type Fields = unsafe extern "C" fn(Handle, c_int, *mut FieldValue) -> Code;
type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;

/// Layout of NVML's `nvmlFieldValue_t`.
#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    kind: c_uint,
    result: Code,
    value: [u8; 8],
}

const _: () = assert!(size_of::<FieldValue>() == 40);

/// The library, which stays initialised until this value is dropped.
pub(super) struct Nvml {
    count: Symbol<Count>,
    by_index: Symbol<ByIndex>,
    name: Symbol<Name>,
    energy: Option<Symbol<Energy>>,
    power: Option<Symbol<Power>>,
    fields: Option<Symbol<Fields>>,
    error_string: Option<Symbol<ErrorString>>,
    shutdown: Symbol<Init>,
    /// Declared last, so that it is dropped after the symbols, which are in it.
    _library: Library,
}

/// A device of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device(Handle);

// SAFETY: NVML documents that it is thread-safe, and a handle is only passed back to it.
unsafe impl Send for Device {}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").finish_non_exhaustive()
    }
}

impl Nvml {
    /// Opens and initialises the library: `given` if it is set, otherwise the first that works.
    pub(super) fn open(given: Option<&Path>) -> Result<Self, Reason> {
        let paths = match given {
            Some(path) => vec![path.to_path_buf()],
            None => {
                let installed = DIRECTORIES.iter().map(|directory| Path::new(directory).join(NAME));
                std::iter::once(PathBuf::from(NAME))
                    .chain(installed.filter(|path| path.exists()))
                    .collect()
            }
        };
        let mut first = None;
        for path in paths {
            match load(&path).and_then(|library| Self::of_library(library, &path)) {
                Ok(nvml) => return Ok(nvml),
                // The user knows best about the library that the loader found first.
                Err(reason) => _ = first.get_or_insert(reason),
            }
        }
        Err(first.unwrap_or(Reason::NoDevice(NAME)))
    }

    fn of_library(library: Library, path: &Path) -> Result<Self, Reason> {
        let missing = |name: &str| Reason::NoLibrary {
            library: path.display().to_string(),
            reason: format!("it has no {name}"),
        };
        let init: Symbol<Init> =
            symbol(&library, c"nvmlInit_v2").ok_or_else(|| missing("nvmlInit_v2"))?;
        let nvml = Self {
            count: symbol(&library, c"nvmlDeviceGetCount_v2")
                .ok_or_else(|| missing("nvmlDeviceGetCount_v2"))?,
            by_index: symbol(&library, c"nvmlDeviceGetHandleByIndex_v2")
                .ok_or_else(|| missing("nvmlDeviceGetHandleByIndex_v2"))?,
            name: symbol(&library, c"nvmlDeviceGetName")
                .ok_or_else(|| missing("nvmlDeviceGetName"))?,
            energy: symbol(&library, c"nvmlDeviceGetTotalEnergyConsumption"),
            power: symbol(&library, c"nvmlDeviceGetPowerUsage"),
            fields: symbol(&library, c"nvmlDeviceGetFieldValues"),
            error_string: symbol(&library, c"nvmlErrorString"),
            shutdown: symbol(&library, c"nvmlShutdown").ok_or_else(|| missing("nvmlShutdown"))?,
            _library: library,
        };
        // SAFETY: the function has no arguments. NVML counts its calls, so other users of the
        // library in this process do not matter.
        let result = unsafe { init() };
        if let Err(reason) = nvml.check("nvmlInit_v2", result) {
            // The library is not initialised, so it must not be shut down. It just stays open.
            std::mem::forget(nvml);
            return Err(reason);
        }
        Ok(nvml)
    }

    /// Returns all devices, but at most `most`.
    pub(super) fn devices(&self, most: usize) -> Result<Vec<Device>, Reason> {
        let mut count = 0;
        // SAFETY: `count` is ours.
        let result = unsafe { (self.count)(&raw mut count) };
        self.check("nvmlDeviceGetCount_v2", result)?;
        let most = c_uint::try_from(most).unwrap_or(c_uint::MAX);
        let device = |index| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: `handle` is ours.
            let result = unsafe { (self.by_index)(index, &raw mut handle) };
            self.check("nvmlDeviceGetHandleByIndex_v2", result).map(|()| Device(handle))
        };
        (0..count.min(most)).map(device).collect()
    }

    /// Returns the name of a device, or an empty text if it has none.
    pub(super) fn name(&self, device: Device) -> String {
        let mut name = [0_u8; DEVICE_NAME_SIZE];
        let size = c_uint::try_from(name.len() - 1).unwrap_or_default();
        // SAFETY: the handle is the library's, which writes at most `size` bytes. A null remains.
        let result = unsafe { (self.name)(device.0, name.as_mut_ptr().cast(), size) };
        let text = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
        if result == code::SUCCESS { text.into_owned() } else { String::new() }
    }

    /// Returns the energy since the driver was loaded, in mJ.
    pub(super) fn energy_mj(&self, device: Device) -> Result<u64, Reason> {
        const FUNCTION: &str = "nvmlDeviceGetTotalEnergyConsumption";
        let mut energy = 0;
        let function =
            self.energy.as_ref().ok_or_else(|| self.told(FUNCTION, code::FUNCTION_NOT_FOUND))?;
        // SAFETY: the handle comes from the library, and `energy` is ours.
        let result = unsafe { function(device.0, &raw mut energy) };
        self.check(FUNCTION, result).map(|()| energy)
    }

    /// Returns the driver's power figure in mW: on newer devices the average of the last second.
    pub(super) fn power_mw(&self, device: Device) -> Result<u64, Reason> {
        const FUNCTION: &str = "nvmlDeviceGetPowerUsage";
        let mut power = 0;
        let function =
            self.power.as_ref().ok_or_else(|| self.told(FUNCTION, code::FUNCTION_NOT_FOUND))?;
        // SAFETY: the handle comes from the library, and `power` is ours.
        let result = unsafe { function(device.0, &raw mut power) };
        self.check(FUNCTION, result).map(|()| u64::from(power))
    }

    /// Returns the momentary power in mW, if the driver supports that.
    pub(super) fn power_instant_mw(&self, device: Device) -> Result<u64, Reason> {
        const FUNCTION: &str = "nvmlDeviceGetFieldValues";
        let function =
            self.fields.as_ref().ok_or_else(|| self.told(FUNCTION, code::FUNCTION_NOT_FOUND))?;
        let mut field = FieldValue {
            field: POWER_INSTANT,
            scope: 0,
            timestamp: 0,
            latency: 0,
            kind: 0,
            result: code::NOT_SUPPORTED,
            value: [0; 8],
        };
        // SAFETY: the handle comes from the library, and `field`, a single field, is ours.
        let result = unsafe { function(device.0, 1, &raw mut field) };
        self.check(FUNCTION, result)?;
        self.check(FUNCTION, field.result)?;
        if field.kind != UNSIGNED_INT {
            return Err(self.told(FUNCTION, code::NOT_SUPPORTED));
        }
        let [a, b, c, d, ..] = field.value;
        Ok(u64::from(u32::from_ne_bytes([a, b, c, d])))
    }

    fn check(&self, function: &'static str, result: Code) -> Result<(), Reason> {
        if result == code::SUCCESS { Ok(()) } else { Err(self.told(function, result)) }
    }

    fn told(&self, function: &'static str, result: Code) -> Reason {
        if result == code::NO_PERMISSION {
            let remedy = "the driver refuses this user".to_owned();
            return Reason::NoPermission { what: function.to_owned(), remedy };
        }
        let text = self.error_string.as_ref().map_or(std::ptr::null(), |function| {
            // SAFETY: the function accepts any number.
            unsafe { function(result) }
        });
        let text = if text.is_null() {
            "no text".to_owned()
        } else {
            // SAFETY: the text is not null, and the library never frees it.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Reason::Library { function, code: result, text }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: this is the only call for this value's `nvmlInit_v2`, and no sensor is left that
        // could call the library.
        unsafe { (self.shutdown)() };
    }
}

fn load(path: &Path) -> Result<Library, Reason> {
    let name = path.display().to_string();
    // SAFETY: NVIDIA's library initialises nothing until it is told to. Another library with this
    // name is the choice of the user who installed or named it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library
        .map_err(|error| Reason::NoLibrary { library: name.clone(), reason: why(&error, &name) })?;
    // SAFETY: only the symbol's address is looked up.
    let own = unsafe { library.get::<*const c_void>(OWN) };
    if own.is_ok() { Err(Reason::OwnLibrary { library: name }) } else { Ok(library) }
}

/// Returns the dynamic loader's message without the name that it begins with.
fn why(error: &libloading::Error, name: &str) -> String {
    let text = error.to_string();
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text).to_owned()
}

/// Looks up a function by its name.
fn symbol<T>(library: &Library, name: &'static CStr) -> Option<Symbol<T>> {
    // SAFETY: each type above is the function's type in NVML's public header. The symbols live in
    // the structure that keeps the library.
    unsafe { library.get(name.to_bytes_with_nul()) }.ok()
}
