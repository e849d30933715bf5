//! The functions of NVML that are served.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_cl_sys::{CL_DEVICE_MAX_CLOCK_FREQUENCY, CL_DEVICE_NAME};

use crate::code;
use crate::devices::{self, Watched};
use crate::structs::{MEMORY_V2, Memory, MemoryV2, PciInfo, PciInfoV1, PciInfoV2, Utilization};

/// Version of the driver interface of Penstock's `libcuda.so.1`: 1000 * major + 10 * minor.
const CUDA_VERSION: c_int = 13_000;
/// Version of the first NVIDIA drivers with this version of the interface.
const DRIVER_VERSION: &str = "580.00";
/// Compute capability that all devices support: device code for it runs on the whole pool.
const COMPUTE_CAPABILITY: (c_int, c_int) = (7, 5);
/// Value of NVML's `NVML_BRAND_UNKNOWN`.
const BRAND_UNKNOWN: c_uint = 0;
/// Value of NVML's `NVML_DEVICE_ARCH_UNKNOWN`.
const ARCHITECTURE_UNKNOWN: c_uint = u32::MAX;
/// `NVML_COMPUTEMODE_DEFAULT`, and also `NVML_FEATURE_DISABLED`.
const DEFAULT: c_uint = 0;

/// Runs the body of an entry point. A panic must not unwind into the program.
fn guard(body: impl FnOnce() -> Result<(), u32>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => code::UNKNOWN,
    }
}

/// Stores a value in the program's memory.
fn give<T>(place: *mut T, value: T) -> Result<(), u32> {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: `place` is not null, and the program guarantees that it is valid for a write.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a text and its terminating null.
fn give_text(place: *mut c_char, length: c_uint, text: &str) -> Result<(), u32> {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the program guarantees `length` bytes, which is more than the text has.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

fn text_of<'a>(text: *const c_char) -> Result<&'a str, u32> {
    if text.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: `text` is not null, and the program guarantees a C string that outlives the call.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| code::INVALID_ARGUMENT)
}

/// Returns the handle of a device: its index, counted from 1.
fn handle(index: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(index + 1)
}

fn with<T>(device: *mut c_void, ask: impl FnOnce(&Watched) -> Result<T, u32>) -> Result<T, u32> {
    devices::with_all(|all| {
        let index = device.addr().checked_sub(1);
        ask(index.and_then(|index| all.get(index)).ok_or(code::INVALID_ARGUMENT)?)
    })
}

fn index_of(device: *mut c_void) -> Result<c_uint, u32> {
    with(device, |_| c_uint::try_from(device.addr() - 1).map_err(|_| code::INVALID_ARGUMENT))
}

fn find(place: *mut *mut c_void, is_it: impl Fn(&Watched) -> bool) -> Result<(), u32> {
    let index = devices::with_all(|all| all.iter().position(is_it).ok_or(code::NOT_FOUND))?;
    give(place, handle(index))
}

fn by_index(index: c_uint, place: *mut *mut c_void) -> Result<(), u32> {
    let index = index as usize;
    devices::with_all(|all| all.get(index).map(drop).ok_or(code::INVALID_ARGUMENT))?;
    give(place, handle(index))
}

/// Finds the device at a PCI address such as "0000:01:00.0". The domain is optional.
fn by_bus_id(text: *const c_char, place: *mut *mut c_void) -> Result<(), u32> {
    let numbers: Vec<_> =
        text_of(text)?.split([':', '.']).map(|part| u32::from_str_radix(part, 16)).collect();
    let (domain, bus, device) = match numbers.as_slice() {
        [Ok(domain), Ok(bus), Ok(device), Ok(_)] => (*domain, *bus, *device),
        [Ok(bus), Ok(device), Ok(_)] => (0, *bus, *device),
        _ => return Err(code::INVALID_ARGUMENT),
    };
    find(place, |it| it.device.pci() == [domain, bus, device])
}

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    all
}

/// Returns the part that all versions of the structure share.
fn pci_info_v1(device: *mut c_void) -> Result<PciInfoV1, u32> {
    let [domain, bus, slot] = with(device, |it| Ok(it.device.pci()))?;
    // The PCI device number is 0 because it is unknown, and would not be NVIDIA's.
    let bus_id = chars(&format!("{domain:04X}:{bus:02X}:{slot:02X}.0"));
    Ok(PciInfoV1 { bus_id, domain, bus, device: slot, pci_device_id: 0 })
}

fn pci_info(device: *mut c_void) -> Result<PciInfo, u32> {
    let PciInfoV1 { bus_id, domain, bus, device, pci_device_id } = pci_info_v1(device)?;
    Ok(PciInfo {
        bus_id_legacy: bus_id,
        domain,
        bus,
        device,
        pci_device_id,
        pci_sub_system_id: 0,
        bus_id: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    })
}

fn clock(device: *mut c_void, place: *mut c_uint) -> Result<(), u32> {
    let mhz = with(device, |it| Ok(it.device.number(CL_DEVICE_MAX_CLOCK_FREQUENCY)))?;
    give(place, c_uint::try_from(mhz).unwrap_or(c_uint::MAX))
}

/// Defines C functions from bodies that use `?`.
macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The program follows NVML's rules: each pointer is null or valid for its type.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "C's name")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> u32 {
            guard(|| $body)
        }
    )+

        /// Names of the functions that are served.
        pub const SERVED: &[&str] = &["nvmlErrorString", $(stringify!($name)),+];
    };
}

/// Returns the description of a code.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
#[rustfmt::skip]
// `build.rs` looks for lines that start with `fn nvml`.
pub extern "C"
fn nvmlErrorString(result: u32) -> *const c_char {
    let text = match result {
        code::SUCCESS => c"Success",
        code::UNINITIALIZED => c"Uninitialized",
        code::INVALID_ARGUMENT => c"Invalid Argument",
        code::NOT_SUPPORTED => c"Not Supported",
        code::NOT_FOUND => c"Not Found",
        code::INSUFFICIENT_SIZE => c"Insufficient Size",
        code::DRIVER_NOT_LOADED => c"Driver Not Loaded",
        code::GPU_IS_LOST => c"GPU is lost",
        code::ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

entries! {
    fn nvmlInit() { devices::init() }
    fn nvmlInit_v2() { devices::init() }
    /// Opens the pool. The flags have no effect: a pool without devices is never an error.
    fn nvmlInitWithFlags(_flags: c_uint) { devices::init() }
    /// Closes the pool if this is the last open reference.
    fn nvmlShutdown() { devices::shutdown() }
    /// Returns the version of an NVIDIA driver with the same interface, because tools compare it.
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) {
        give_text(version, length, DRIVER_VERSION)
    }
    /// Returns 13, the major version of the interface, followed by Penstock's version.
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) {
        give_text(version, length, concat!("13.", env!("CARGO_PKG_VERSION")))
    }
    /// Returns the version of `libcuda.so.1`.
    fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) { give(version, CUDA_VERSION) }
    /// Returns the version of `libcuda.so.1`.
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) { give(version, CUDA_VERSION) }
    /// Returns the number of devices in the pool that CUDA programs can use.
    fn nvmlDeviceGetCount(count: *mut c_uint) {
        give(count, devices::with_all(|all| c_uint::try_from(all.len()).map_err(|_| code::UNKNOWN))?)
    }
    /// Returns the number of devices in the pool that CUDA programs can use.
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        give(count, devices::with_all(|all| c_uint::try_from(all.len()).map_err(|_| code::UNKNOWN))?)
    }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut *mut c_void) { by_index(index, device) }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) { by_index(index, device) }
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void) {
        let uuid = text_of(uuid)?;
        find(device, |it| it.device.uuid_text() == uuid)
    }
    fn nvmlDeviceGetHandleByPciBusId(bus_id: *const c_char, device: *mut *mut c_void) { by_bus_id(bus_id, device) }
    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, device: *mut *mut c_void) { by_bus_id(bus_id, device) }
    /// Returns the name that the device's driver reports.
    fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, length: c_uint) {
        give_text(name, length, &with(device, |it| Ok(it.device.text(CL_DEVICE_NAME)))?)
    }
    /// Returns the same UUID as `cuDeviceGetUuid`.
    fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint) {
        give_text(uuid, length, &with(device, |it| Ok(it.device.uuid_text()))?)
    }
    fn nvmlDeviceGetIndex(device: *mut c_void, index: *mut c_uint) { give(index, index_of(device)?) }
    /// Returns the device's index, because there are no device files.
    fn nvmlDeviceGetMinorNumber(device: *mut c_void, number: *mut c_uint) { give(number, index_of(device)?) }
    /// Returns the PCI address in NVML's first structure.
    fn nvmlDeviceGetPciInfo(device: *mut c_void, info: *mut PciInfoV1) { give(info, pci_info_v1(device)?) }
    /// Returns the PCI address in NVML's second structure.
    fn nvmlDeviceGetPciInfo_v2(device: *mut c_void, info: *mut PciInfoV2) {
        give(info, PciInfoV2 { first: pci_info_v1(device)?, pci_sub_system_id: 0, reserved: [0; 4] })
    }
    /// Returns the PCI address in NVML's current structure.
    fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, info: *mut PciInfo) { give(info, pci_info(device)?) }
    /// Returns the memory in bytes: total, free, and used by any program. Returns "Not Supported"
    /// if the usage is unknown.
    fn nvmlDeviceGetMemoryInfo(device: *mut c_void, memory: *mut Memory) {
        let (total, free) = with(device, Watched::memory)?;
        give(memory, Memory { total, free, used: total - free })
    }
    /// Like `nvmlDeviceGetMemoryInfo`. No memory is reserved.
    fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut MemoryV2) {
        if memory.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: `memory` is not null, and the program's structure begins with its version.
        if unsafe { (&raw const (*memory).version).read() } != MEMORY_V2 {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let (total, free) = with(device, Watched::memory)?;
        give(memory, MemoryV2 { version: MEMORY_V2, total, reserved: 0, free, used: total - free })
    }
    /// Returns the percentage of time that the device was busy since the last query. The value for
    /// its memory is unknown, so it is always 0.
    fn nvmlDeviceGetUtilizationRates(device: *mut c_void, utilization: *mut Utilization) {
        give(utilization, Utilization { gpu: with(device, Watched::utilization)?, memory: 0 })
    }
    /// Returns the compute capability: the GPU's, or the one that all devices support.
    fn nvmlDeviceGetCudaComputeCapability(device: *mut c_void, major: *mut c_int, minor: *mut c_int) {
        let capability = with(device, |it| Ok(it.capability()))?.unwrap_or(COMPUTE_CAPABILITY);
        give(major, capability.0)?;
        give(minor, capability.1)
    }
    /// Reports the default mode: several programs may use the device.
    fn nvmlDeviceGetComputeMode(device: *mut c_void, mode: *mut c_uint) { index_of(device).and_then(|_| give(mode, DEFAULT)) }
    /// Reports "disabled", because there is no such mode.
    fn nvmlDeviceGetPersistenceMode(device: *mut c_void, mode: *mut c_uint) { index_of(device).and_then(|_| give(mode, DEFAULT)) }
    /// Reports an unknown brand.
    fn nvmlDeviceGetBrand(device: *mut c_void, brand: *mut c_uint) { index_of(device).and_then(|_| give(brand, BRAND_UNKNOWN)) }
    /// Reports an unknown architecture.
    fn nvmlDeviceGetArchitecture(device: *mut c_void, architecture: *mut c_uint) {
        index_of(device).and_then(|_| give(architecture, ARCHITECTURE_UNKNOWN))
    }
    /// Returns the driver's `CL_DEVICE_MAX_CLOCK_FREQUENCY` in MHz for every kind of clock.
    fn nvmlDeviceGetMaxClockInfo(device: *mut c_void, _kind: c_uint, mhz: *mut c_uint) { clock(device, mhz) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetClockInfo(_device: *mut c_void, _kind: c_uint, _mhz: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetPowerUsage(_device: *mut c_void, _milliwatts: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetEnforcedPowerLimit(_device: *mut c_void, _milliwatts: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetPowerManagementLimit(_device: *mut c_void, _milliwatts: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetTotalEnergyConsumption(_device: *mut c_void, _millijoules: *mut u64) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetTemperature(_device: *mut c_void, _sensor: c_uint, _degrees: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because nothing measures it.
    fn nvmlDeviceGetFanSpeed(_device: *mut c_void, _percent: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because it is unknown.
    fn nvmlDeviceGetPerformanceState(_device: *mut c_void, _state: *mut c_uint) { Err(code::NOT_SUPPORTED) }
    /// Not supported, because process identifiers of other hosts mean nothing here.
    fn nvmlDeviceGetComputeRunningProcesses_v3(_device: *mut c_void, _count: *mut c_uint, _infos: *mut c_void) {
        Err(code::NOT_SUPPORTED)
    }
    /// Not supported, because process identifiers of other hosts mean nothing here.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(_device: *mut c_void, _count: *mut c_uint, _infos: *mut c_void) {
        Err(code::NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_is_served_is_nvmls() {
        let names: Vec<_> = include_str!("symbols.txt").lines().collect();
        for name in SERVED {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn texts_fit_or_are_refused() {
        let mut place = [1; 4];
        assert_eq!(give_text(place.as_mut_ptr(), 4, "abc"), Ok(()));
        assert_eq!(place, [97, 98, 99, 0]);
        assert_eq!(give_text(place.as_mut_ptr(), 4, "abcd"), Err(code::INSUFFICIENT_SIZE));
        assert_eq!(give_text(std::ptr::null_mut(), 4, "a"), Err(code::INVALID_ARGUMENT));
    }

    #[test]
    fn nothing_answers_before_it_is_opened() {
        let mut count = 0;
        // SAFETY: the pointer is valid for the write of a number.
        assert_eq!(unsafe { nvmlDeviceGetCount_v2(&mut count) }, code::UNINITIALIZED);
        // SAFETY: the function has no arguments.
        assert_eq!(unsafe { nvmlShutdown() }, code::UNINITIALIZED);
    }
}
