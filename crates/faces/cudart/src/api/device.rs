//! Devices: their number, properties, limits and settings.

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

/// Size of the buffer for a device's name.
const NAME_BYTES: usize = 256;

/// Properties that are not attributes. The LUID is left out because only Windows has it.
struct Identity {
    name: [u8; NAME_BYTES],
    uuid: [u8; 16],
    memory_bytes: usize,
}

fn identity(device: &Device) -> RtResult<Identity> {
    let driver = driver()?;
    let mut found = Identity { name: [0; NAME_BYTES], uuid: [0; 16], memory_bytes: 0 };
    let handle = device.handle;
    // SAFETY: the pointers are valid for writes of the answers, and the name's buffer has `length`
    // bytes. Older drivers have no UUID.
    unsafe {
        let (length, name) = (c_int::try_from(NAME_BYTES).unwrap_or(0), found.name.as_mut_ptr());
        driver.cuDeviceGetName(name.cast(), length, handle)?;
        driver.cuDeviceTotalMem_v2(&raw mut found.memory_bytes, handle)?;
        _ = driver.cuDeviceGetUuid_v2((&raw mut found.uuid).cast(), handle);
    }
    Ok(found)
}

/// Returns all properties that `cudaGetDeviceProperties` of version 12 reports.
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

/// Returns all properties that `cudaGetDeviceProperties` of version 13 reports.
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
    /// Returns the number of devices.
    fn cudaGetDeviceCount(count: *mut c_int) {
        if count.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        count.write(0);
        count.write(c_int::try_from(devices()?.len()).unwrap_or(c_int::MAX));
        Ok(())
    }
    /// Returns the ordinal of the thread's device.
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
    /// Creates the context of a device without choosing the device.
    fn cudaInitDevice(ordinal: c_int, device_flags: c_uint, flags: c_uint) {
        const FLAGS_ARE_VALID: c_uint = 1;
        let device = device(ordinal)?;
        if flags & FLAGS_ARE_VALID != 0 {
            driver()?.cuDevicePrimaryCtxSetFlags_v2(device.handle, device_flags)?;
        }
        device.primary().map(drop)
    }
    /// Returns an attribute of a device.
    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, ordinal: c_int) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        driver()?.cuDeviceGetAttribute(value, attribute, device(ordinal)?.handle)
    }
    /// Returns all properties in the layout of the version that the program was compiled for.
    fn cudaGetDeviceProperties(properties: *mut c_void, ordinal: c_int) {
        if properties.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        if major() > 12 {
            properties.cast::<DeviceProperties13>().write_unaligned(properties_13(ordinal)?);
        } else {
            // Programs of version 12 call the `_v2` function. Only older programs call this one,
            // and their structure is shorter.
            let found = properties_12(ordinal)?;
            let bytes = (&raw const found).cast::<u8>();
            bytes.copy_to_nonoverlapping(properties.cast(), DEVICE_PROPERTIES_11_BYTES);
        }
        Ok(())
    }
    /// Returns all properties in the layout of version 12.
    fn cudaGetDeviceProperties_v2(properties: *mut c_void, ordinal: c_int) {
        if properties.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        properties.cast::<DeviceProperties12>().write_unaligned(properties_12(ordinal)?);
        Ok(())
    }
    /// Returns the first device whose compute capability and memory suffice, or the first device.
    fn cudaChooseDevice(ordinal: *mut c_int, wanted: *const c_void) {
        if ordinal.is_null() || wanted.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let (capability, memory) = if major() > 12 {
            let wanted = wanted.cast::<DeviceProperties13>().read_unaligned();
            ((wanted.major, wanted.minor), wanted.totalGlobalMem)
        } else {
            // The structure may be the older, shorter one, so only the common part is read.
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
    /// Chooses the first device of a list for the thread.
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
    /// Sets the flags of the context that will be created.
    fn cudaSetDeviceFlags(flags: c_uint) {
        let device = device(current_ordinal()?)?;
        driver()?.cuDevicePrimaryCtxSetFlags_v2(device.handle, flags)
    }
    /// Returns the flags of the context.
    fn cudaGetDeviceFlags(flags: *mut c_uint) {
        if flags.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let device = device(current_ordinal()?)?;
        let mut active = 0;
        driver()?.cuDevicePrimaryCtxGetState(device.handle, flags, &raw mut active)
    }
    /// Waits until the device has done all its work.
    fn cudaDeviceSynchronize() {
        current()?.driver.cuCtxSynchronize()
    }
    /// Destroys the context and everything in it.
    fn cudaDeviceReset() {
        reset()
    }
    fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetLimit(value, limit)
    }
    fn cudaDeviceSetLimit(limit: c_uint, value: usize) {
        current()?.driver.cuCtxSetLimit(limit, value)
    }
    /// Returns the preferred split of the on-chip memory.
    fn cudaDeviceGetCacheConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetCacheConfig(config)
    }
    /// Sets the preferred split of the on-chip memory.
    fn cudaDeviceSetCacheConfig(config: c_uint) {
        current()?.driver.cuCtxSetCacheConfig(config)
    }
    /// Returns the width of shared memory banks: four bytes on every device since 2014.
    fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?;
        config.write(BANKS_OF_FOUR_BYTES);
        Ok(())
    }
    /// Accepts a preferred width of shared memory banks, which has had no effect since 2014.
    fn cudaDeviceSetSharedMemConfig(config: c_uint) {
        if config > BANKS_MAX {
            return Err(RtError::INVALID_VALUE);
        }
        current().map(drop)
    }
    /// Returns the lowest and the highest priority of a stream.
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?.driver.cuCtxGetStreamPriorityRange(least, greatest)
    }
    /// Returns the ordinal of the device at a PCI address.
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
    /// Returns a device's PCI address.
    fn cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, ordinal: c_int) {
        driver()?.cuDeviceGetPCIBusId(id, length, device(ordinal)?.handle)
    }
    /// Does nothing, because no data stays in a cache for long.
    fn cudaCtxResetPersistingL2Cache() {
        current().map(drop)
    }
    /// Returns the free and the total device memory in bytes.
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        current()?.driver.cuMemGetInfo_v2(&raw mut free_bytes, &raw mut total_bytes)?;
        store(free, free_bytes);
        store(total, total_bytes);
        Ok(())
    }
}

/// `cudaSharedMemBankSizeFourByte`, and the largest value of its enumeration.
const BANKS_OF_FOUR_BYTES: c_uint = 1;
const BANKS_MAX: c_uint = 2;

entry! {
    /// Early name of `cudaDeviceReset`.
    fn cudaThreadExit() { reset() }
    /// Early name of `cudaDeviceSynchronize`.
    fn cudaThreadSynchronize() { current()?.driver.cuCtxSynchronize() }
    /// Early name of `cudaDeviceGetLimit`.
    fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) {
        if value.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetLimit(value, limit)
    }
    /// Early name of `cudaDeviceSetLimit`.
    fn cudaThreadSetLimit(limit: c_uint, value: usize) { current()?.driver.cuCtxSetLimit(limit, value) }
    /// Early name of `cudaDeviceGetCacheConfig`.
    fn cudaThreadGetCacheConfig(config: *mut c_uint) {
        if config.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        current()?.driver.cuCtxGetCacheConfig(config)
    }
    /// Early name of `cudaDeviceSetCacheConfig`.
    fn cudaThreadSetCacheConfig(config: c_uint) { current()?.driver.cuCtxSetCacheConfig(config) }
    /// Does nothing, because devices have doubles.
    fn cudaSetDoubleForDevice(_value: *mut f64) { Ok(()) }
    /// Does nothing, because devices have doubles.
    fn cudaSetDoubleForHost(_value: *mut f64) { Ok(()) }
}
