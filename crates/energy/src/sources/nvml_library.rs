//! NVIDIA's management library, opened at run time. The only place that knows its C interface.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::reason::Reason;

/// What the dynamic loader is asked for first.
const NAME: &str = "libnvidia-ml.so.1";
/// Where drivers install it, for the case that the loader finds Penstock's own first.
const DIRECTORIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];
/// A symbol that only Penstock's library of that name has.
const OWN: &[u8] = b"penstock_nvml\0";
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE`.
const DEVICE_NAME_SIZE: usize = 96;
/// `NVML_FI_DEV_POWER_INSTANT`.
const POWER_INSTANT: c_uint = 186;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: c_uint = 1;

type Code = c_uint;
/// `nvmlReturn_t`.
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

/// `nvmlFieldValue_t`.
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

/// The library, initialised until this is dropped.
pub(super) struct Nvml {
    count: Symbol<Count>,
    by_index: Symbol<ByIndex>,
    name: Symbol<Name>,
    energy: Option<Symbol<Energy>>,
    power: Option<Symbol<Power>>,
    fields: Option<Symbol<Fields>>,
    error_string: Option<Symbol<ErrorString>>,
    shutdown: Symbol<Init>,
    /// Last: the symbols above are in it.
    _library: Library,
}

/// A device of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device(Handle);

// SAFETY: NVML says of itself that it is thread-safe; a handle is only ever given back to it.
unsafe impl Send for Device {}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").finish_non_exhaustive()
    }
}

impl Nvml {
    /// Opens and initialises it. `given` is the only one that is tried, if it is given.
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
                // What the loader found first is what a person knows about.
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
        // SAFETY: `nvmlInit_v2` has no arguments; it is counted, so that other users of the library in this process do not matter.
        let result = unsafe { init() };
        if let Err(reason) = nvml.check("nvmlInit_v2", result) {
            // Not initialised: nothing to shut down. The library stays open, which costs nothing.
            std::mem::forget(nvml);
            return Err(reason);
        }
        Ok(nvml)
    }

    /// All devices, at most `most`.
    pub(super) fn devices(&self, most: usize) -> Result<Vec<Device>, Reason> {
        let mut count = 0;
        // SAFETY: the place is ours.
        let result = unsafe { (self.count)(&raw mut count) };
        self.check("nvmlDeviceGetCount_v2", result)?;
        let most = c_uint::try_from(most).unwrap_or(c_uint::MAX);
        let device = |index| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the place is ours.
            let result = unsafe { (self.by_index)(index, &raw mut handle) };
            self.check("nvmlDeviceGetHandleByIndex_v2", result).map(|()| Device(handle))
        };
        (0..count.min(most)).map(device).collect()
    }

    /// The name of a device; empty if there is none.
    pub(super) fn name(&self, device: Device) -> String {
        let mut name = [0_u8; DEVICE_NAME_SIZE];
        let size = c_uint::try_from(name.len() - 1).unwrap_or_default();
        // SAFETY: the handle is the library's own; it writes at most one byte less than there is place, so that a NUL remains.
        let result = unsafe { (self.name)(device.0, name.as_mut_ptr().cast(), size) };
        let text = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
        if result == code::SUCCESS { text.into_owned() } else { String::new() }
    }

    /// Energy since the driver was loaded, in mJ.
    pub(super) fn energy_mj(&self, device: Device) -> Result<u64, Reason> {
        const FUNCTION: &str = "nvmlDeviceGetTotalEnergyConsumption";
        let mut energy = 0;
        let function =
            self.energy.as_ref().ok_or_else(|| self.told(FUNCTION, code::FUNCTION_NOT_FOUND))?;
        // SAFETY: the handle is the library's own, the place is ours.
        let result = unsafe { function(device.0, &raw mut energy) };
        self.check(FUNCTION, result).map(|()| energy)
    }

    /// Power as the driver says it, in mW: on newer devices an average of the last second.
    pub(super) fn power_mw(&self, device: Device) -> Result<u64, Reason> {
        const FUNCTION: &str = "nvmlDeviceGetPowerUsage";
        let mut power = 0;
        let function =
            self.power.as_ref().ok_or_else(|| self.told(FUNCTION, code::FUNCTION_NOT_FOUND))?;
        // SAFETY: the handle is the library's own, the place is ours.
        let result = unsafe { function(device.0, &raw mut power) };
        self.check(FUNCTION, result).map(|()| u64::from(power))
    }

    /// Power at this moment, in mW, where the driver has that.
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
        // SAFETY: the handle is the library's own; one field, in a place of ours.
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
            // SAFETY: any number may be asked for.
            unsafe { function(result) }
        });
        let text = if text.is_null() {
            "no text".to_owned()
        } else {
            // SAFETY: not null, and a text of the library that stays.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Reason::Library { function, code: result, text }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: once for the one `nvmlInit_v2` of this value; no sensor is left that could call the library.
        unsafe { (self.shutdown)() };
    }
}

fn load(path: &Path) -> Result<Library, Reason> {
    let name = path.display().to_string();
    // SAFETY: the library of the driver, which initialises nothing until it is told to; what else is named so is the choice of who named it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library
        .map_err(|error| Reason::NoLibrary { library: name.clone(), reason: why(&error, &name) })?;
    // SAFETY: only its address is asked for.
    let own = unsafe { library.get::<*const c_void>(OWN) };
    if own.is_ok() { Err(Reason::OwnLibrary { library: name }) } else { Ok(library) }
}

/// What the dynamic loader says, without the name that it begins with.
fn why(error: &libloading::Error, name: &str) -> String {
    let text = error.to_string();
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text).to_owned()
}

/// The function of that name.
fn symbol<T>(library: &Library, name: &'static CStr) -> Option<Symbol<T>> {
    // SAFETY: each type above is what NVML's public header says of the function; the symbols live in the struct that keeps the library.
    unsafe { library.get(name.to_bytes_with_nul()) }.ok()
}
