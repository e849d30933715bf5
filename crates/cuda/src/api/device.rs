//! Devices.

use std::ffi::{c_char, c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::{attribute, device, platform};
use crate::edge::{CuResult, cu_entry, require, store, text};

/// Writes a string with its final 0, cut to the program's room.
///
/// # Safety
/// `to` has room for `room` bytes.
unsafe fn write_text(to: *mut c_char, room: c_int, text: &str) -> CuResult {
    let room =
        usize::try_from(room).ok().filter(|room| *room > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    require(!to.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let length = text.len().min(room - 1);
    // SAFETY: there is room for these bytes and the 0.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length) };
    // SAFETY: as above.
    unsafe { to.add(length).write(0) };
    Ok(())
}

fn pci_text(of: &device::Facts) -> String {
    let [domain, bus, device] = of.pci;
    format!("{domain:04x}:{bus:02x}:{device:02x}.0")
}

cu_entry! {
    /// `cuDeviceGet`.
    fn cuDeviceGet(result: *mut CUdevice, ordinal: c_int) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device(ordinal)?;
        // SAFETY: a place for the device.
        unsafe { store(result, device.number()) };
        Ok(())
    }
    /// `cuDeviceGetCount`.
    fn cuDeviceGetCount(count: *mut c_int) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let devices = c_int::try_from(platform::devices()?.len()).unwrap_or(c_int::MAX);
        // SAFETY: a place for the number.
        unsafe { store(count, devices) };
        Ok(())
    }
    /// `cuDeviceGetName`.
    fn cuDeviceGetName(name: *mut c_char, room: c_int, dev: CUdevice) {
        let device = platform::device(dev)?;
        // SAFETY: the program's room.
        unsafe { write_text(name, room, &device.facts.name) }
    }
    /// `cuDeviceTotalMem`.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) {
        require(!bytes.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let total = platform::device(dev)?.space.total();
        // SAFETY: a place for the number.
        unsafe { store(bytes, usize::try_from(total).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// `cuDeviceGetAttribute`.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, dev: CUdevice) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = attribute::of_device(platform::device(dev)?, attribute)?;
        // SAFETY: a place for the number.
        unsafe { store(value, answer) };
        Ok(())
    }
    /// `cuDeviceComputeCapability`.
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) {
        require(!major.is_null() && !minor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device(dev)?;
        let capability = [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
        let [first, second] = capability.map(|part| attribute::of_device(device, part));
        // SAFETY: a place for the number.
        unsafe { store(major, first?) };
        // SAFETY: a place for the number.
        unsafe { store(minor, second?) };
        Ok(())
    }
    /// `cuDeviceGetProperties`.
    fn cuDeviceGetProperties(properties: *mut CUdevprop, dev: CUdevice) {
        require(!properties.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device(dev)?;
        let of = |name| attribute::of_device(device, name);
        let answer = CUdevprop {
            maxThreadsPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            maxThreadsDim: [
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            maxGridSize: [
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            sharedMemPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            totalConstantMemory: of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)?,
            SIMDWidth: attribute::WARP,
            memPitch: of(CU_DEVICE_ATTRIBUTE_MAX_PITCH)?,
            regsPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
            clockRate: of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            textureAlign: of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
        };
        // SAFETY: a place for the structure.
        unsafe { store(properties, answer) };
        Ok(())
    }
    /// `cuDeviceGetUuid`.
    fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) {
        require(!uuid.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let bytes = platform::device(dev)?.facts.uuid;
        // SAFETY: a place for the name.
        unsafe { store(uuid, CUuuid { bytes }) };
        Ok(())
    }
    /// `cuDeviceGetUuid`, which tells parts of a device apart; there are none here.
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) {
        require(!uuid.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let bytes = platform::device(dev)?.facts.uuid;
        // SAFETY: a place for the name.
        unsafe { store(uuid, CUuuid { bytes }) };
        Ok(())
    }
    /// `cuDeviceGetLuid`: only Windows has it.
    fn cuDeviceGetLuid(_luid: *mut c_char, _mask: *mut c_uint, dev: CUdevice) {
        platform::device(dev)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    /// `cuDeviceGetPCIBusId`.
    fn cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, dev: CUdevice) {
        let device = platform::device(dev)?;
        // SAFETY: the program's room.
        unsafe { write_text(id, room, &pci_text(&device.facts)) }
    }
    /// `cuDeviceGetByPCIBusId`: `[domain]:[bus]:[device].[function]`, with or without domain and function.
    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) {
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a string of the program.
        let id = unsafe { text(id) }?.to_str().map_err(|_| CUDA_ERROR_INVALID_VALUE)?.to_ascii_lowercase();
        let id = if id.contains('.') { id } else { format!("{id}.0") };
        let found = platform::devices()?.iter().find(|device| {
            let full = pci_text(&device.facts);
            full == id || (device.facts.pci[0] == 0 && full.ends_with(&id) && id.len() + 5 == full.len())
        });
        // SAFETY: a place for the device.
        unsafe { store(dev, found.ok_or(CUDA_ERROR_INVALID_DEVICE)?.number()) };
        Ok(())
    }
    /// `cuDeviceGetTexture1DLinearMaxWidth`.
    fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, _format: c_uint, _channels: c_uint, dev: CUdevice) {
        require(!width.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let most = attribute::of_device(platform::device(dev)?, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?;
        // SAFETY: a place for the number.
        unsafe { store(width, usize::try_from(most).unwrap_or(0)) };
        Ok(())
    }
    /// `cuDeviceGetExecAffinitySupport`: no device here can be divided.
    fn cuDeviceGetExecAffinitySupport(supported: *mut c_int, _kind: c_uint, dev: CUdevice) {
        require(!supported.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::device(dev)?;
        // SAFETY: a place for the number.
        unsafe { store(supported, 0) };
        Ok(())
    }
}
