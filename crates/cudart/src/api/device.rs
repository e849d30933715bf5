//! Devices.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
};
use penstock_cuda_sys::runtime_codes as code;
use penstock_cuda_sys::runtime_properties::{
    DEVICE_PROPERTIES_11_BYTES, DeviceProperties12, DeviceProperties13,
};

use crate::core::context::{Device, choose, current, current_ordinal, device, devices, reset};
use crate::core::store;
use crate::driver::driver;
use crate::edge::{RtError, RtResult, THREAD, entry, major};

/// Room for a device's name.
const NAME_BYTES: usize = 256;

/// What no attribute tells. There is more, a LUID, but only on another system.
struct Identity {
    name: [u8; NAME_BYTES],
    uuid: [u8; 16],
    memory_bytes: usize,
}

fn identity(device: &Device) -> RtResult<Identity> {
    let driver = driver()?;
    let mut found = Identity { name: [0; NAME_BYTES], uuid: [0; 16], memory_bytes: 0 };
    let handle = device.handle;
    // SAFETY: places for the answers, as large as is said. Older drivers have no UUID.
    unsafe {
        let (length, name) = (c_int::try_from(NAME_BYTES).unwrap_or(0), found.name.as_mut_ptr());
        driver.cuDeviceGetName(name.cast(), length, handle)?;
        driver.cuDeviceTotalMem(&raw mut found.memory_bytes, handle)?;
        _ = driver.cuDeviceGetUuid(&raw mut found.uuid, handle);
    }
    Ok(found)
}

/// All that `cudaGetDeviceProperties` of version 12 gives.
fn properties_12(ordinal: c_int) -> RtResult<DeviceProperties12> {
    let device = device(ordinal)?;
    let Identity { name, uuid, memory_bytes } = identity(device)?;
    Ok(DeviceProperties12 {
        name,
        uuid,
        totalGlobalMem: memory_bytes,
        ..DeviceProperties12::from_attributes(|attribute| device.attribute(attribute))
    })
}

/// All that `cudaGetDeviceProperties` of version 13 gives.
fn properties_13(ordinal: c_int) -> RtResult<DeviceProperties13> {
    let device = device(ordinal)?;
    let Identity { name, uuid, memory_bytes } = identity(device)?;
    Ok(DeviceProperties13 {
        name,
        uuid,
        totalGlobalMem: memory_bytes,
        ..DeviceProperties13::from_attributes(|attribute| device.attribute(attribute))
    })
}

entry! {
    /// How many devices there are.
    fn cudaGetDeviceCount(count: *mut c_int) {
        if count.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        count.write(0);
        count.write(c_int::try_from(devices()?.len()).unwrap_or(c_int::MAX));
        Ok(())
    }
    /// The thread's device.
    fn cudaGetDevice(ordinal: *mut c_int) {
        if ordinal.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        ordinal.write(current_ordinal()?);
        Ok(())
    }
    /// Chooses the thread's device.
    fn cudaSetDevice(ordinal: c_int) {
        choose(ordinal)
    }
    /// Makes the context of a device, without choosing it.
    fn cudaInitDevice(ordinal: c_int, device_flags: c_uint, flags: c_uint) {
        /// `cudaInitDeviceFlagsAreValid`
        const FLAGS_ARE_VALID: c_uint = 1;
        let device = device(ordinal)?;
        if flags & FLAGS_ARE_VALID != 0 {
            driver()?.cuDevicePrimaryCtxSetFlags(device.handle, device_flags)?;
        }
        device.primary().map(drop)
    }
    /// One attribute.
    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, ordinal: c_int) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        driver()?.cuDeviceGetAttribute(value, attribute, device(ordinal)?.handle)
    }
    /// All properties, in the form of the version that the program was compiled for.
    fn cudaGetDeviceProperties(properties: *mut c_void, ordinal: c_int) {
        if properties.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        if major() > 12 {
            properties.cast::<DeviceProperties13>().write_unaligned(properties_13(ordinal)?);
        } else {
            // Programs of version 12 call the function with `_v2`; this one's are older, and their structure is shorter.
            let found = properties_12(ordinal)?;
            let bytes = (&raw const found).cast::<u8>();
            bytes.copy_to_nonoverlapping(properties.cast(), DEVICE_PROPERTIES_11_BYTES);
        }
        Ok(())
    }
    /// All properties, in the form of version 12.
    fn cudaGetDeviceProperties_v2(properties: *mut c_void, ordinal: c_int) {
        if properties.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        properties.cast::<DeviceProperties12>().write_unaligned(properties_12(ordinal)?);
        Ok(())
    }
    /// The device that is most like what is wanted: the first whose compute capability and memory suffice.
    fn cudaChooseDevice(ordinal: *mut c_int, wanted: *const c_void) {
        if ordinal.is_null() || wanted.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (capability, memory) = if major() > 12 {
            let wanted = wanted.cast::<DeviceProperties13>().read_unaligned();
            ((wanted.major, wanted.minor), wanted.totalGlobalMem)
        } else {
            // Of this version's structure and the one before it only the common part may be read.
            let wanted = wanted.cast::<u8>();
            let at = |offset: usize| wanted.byte_add(offset).cast::<c_int>().read_unaligned();
            let memory = wanted.byte_add(std::mem::offset_of!(DeviceProperties12, totalGlobalMem));
            let major = std::mem::offset_of!(DeviceProperties12, major);
            let minor = std::mem::offset_of!(DeviceProperties12, minor);
            ((at(major), at(minor)), memory.cast::<usize>().read_unaligned())
        };
        let suits = |device: &Device| {
            let has = (
                device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            );
            has >= capability && identity(device).is_ok_and(|identity| identity.memory_bytes >= memory)
        };
        let best = devices()?.iter().position(suits).unwrap_or(0);
        ordinal.write(c_int::try_from(best).unwrap_or(0));
        Ok(())
    }
    /// The devices that a thread may be given, best first: the first of them becomes the thread's.
    fn cudaSetValidDevices(ordinals: *mut c_int, count: c_int) {
        let known = c_int::try_from(devices()?.len()).unwrap_or(c_int::MAX);
        if count == 0 {
            return Ok(());
        }
        if ordinals.is_null() || !(0..=known).contains(&count) {
            return Err(RtError::INVALID_VALUE);
        }
        let list = std::slice::from_raw_parts(ordinals, usize::try_from(count).unwrap_or(0));
        for ordinal in list {
            device(*ordinal)?;
        }
        THREAD.with(|thread| thread.device.set(list[0]));
        Ok(())
    }
    /// Flags of the context that will be made.
    fn cudaSetDeviceFlags(flags: c_uint) {
        let device = device(current_ordinal()?)?;
        driver()?.cuDevicePrimaryCtxSetFlags(device.handle, flags)
    }
    /// Flags of the context.
    fn cudaGetDeviceFlags(flags: *mut c_uint) {
        if flags.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let device = device(current_ordinal()?)?;
        let mut active = 0;
        driver()?.cuDevicePrimaryCtxGetState(device.handle, flags, &raw mut active)
    }
    /// Waits until the device has done all.
    fn cudaDeviceSynchronize() {
        current()?.driver.cuCtxSynchronize()
    }
    /// Ends the context with all that is in it.
    fn cudaDeviceReset() {
        reset()
    }
    /// A limit.
    fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetLimit(value, limit)
    }
    /// Sets a limit.
    fn cudaDeviceSetLimit(limit: c_uint, value: usize) {
        current()?.driver.cuCtxSetLimit(limit, value)
    }
    /// What the on-chip memory is used for.
    fn cudaDeviceGetCacheConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetCacheConfig(config)
    }
    /// Prefers a use of the on-chip memory.
    fn cudaDeviceSetCacheConfig(config: c_uint) {
        current()?.driver.cuCtxSetCacheConfig(config)
    }
    /// Width of the banks of shared memory: four bytes, on every device since 2014.
    fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?;
        config.write(BANKS_OF_FOUR_BYTES);
        Ok(())
    }
    /// Prefers a width of banks, which has no effect since 2014.
    fn cudaDeviceSetSharedMemConfig(config: c_uint) {
        if config > BANKS_MAX {
            return Err(RtError::INVALID_VALUE);
        }
        current().map(drop)
    }
    /// Lowest and highest priority of a stream.
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?.driver.cuCtxGetStreamPriorityRange(least, greatest)
    }
    /// The device at an address of the bus.
    fn cudaDeviceGetByPCIBusId(ordinal: *mut c_int, id: *const c_char) {
        if ordinal.is_null() || id.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut handle = 0;
        driver()?.cuDeviceGetByPCIBusId(&raw mut handle, id)?;
        let place = devices()?.iter().position(|device| device.handle == handle);
        let place = place.and_then(|place| c_int::try_from(place).ok());
        ordinal.write(place.ok_or(RtError(code::INVALID_DEVICE))?);
        Ok(())
    }
    /// A device's address of the bus.
    fn cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, ordinal: c_int) {
        driver()?.cuDeviceGetPCIBusId(id, length, device(ordinal)?.handle)
    }
    /// Nothing is kept in a cache for long.
    fn cudaCtxResetPersistingL2Cache() {
        current().map(drop)
    }
    /// Memory that is free, and all.
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        current()?.driver.cuMemGetInfo(&raw mut free_bytes, &raw mut total_bytes)?;
        store(free, free_bytes);
        store(total, total_bytes);
        Ok(())
    }
}

/// `cudaSharedMemBankSizeFourByte`, and the last of them.
const BANKS_OF_FOUR_BYTES: c_uint = 1;
const BANKS_MAX: c_uint = 2;

entry! {
    /// The name of `cudaDeviceReset` in early versions.
    fn cudaThreadExit() { reset() }
    /// The name of `cudaDeviceSynchronize` in early versions.
    fn cudaThreadSynchronize() { current()?.driver.cuCtxSynchronize() }
    /// The name of `cudaDeviceGetLimit` in early versions.
    fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetLimit(value, limit)
    }
    /// The name of `cudaDeviceSetLimit` in early versions.
    fn cudaThreadSetLimit(limit: c_uint, value: usize) { current()?.driver.cuCtxSetLimit(limit, value) }
    /// The name of `cudaDeviceGetCacheConfig` in early versions.
    fn cudaThreadGetCacheConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetCacheConfig(config)
    }
    /// The name of `cudaDeviceSetCacheConfig` in early versions.
    fn cudaThreadSetCacheConfig(config: c_uint) { current()?.driver.cuCtxSetCacheConfig(config) }
    /// Devices have doubles since long: nothing to convert.
    fn cudaSetDoubleForDevice(_value: *mut f64) { Ok(()) }
    /// Devices have doubles since long: nothing to convert.
    fn cudaSetDoubleForHost(_value: *mut f64) { Ok(()) }
}
