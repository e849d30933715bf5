use std::ffi::{c_char, c_int, c_uint};

use penstock_cuda_sys::driver::*;

use crate::core::facts::DeviceFacts;
use crate::core::{attribute, capability, platform};
use crate::edge::{CuResult, cu_entry, require, store, text};

/// Writes a string with a terminating 0, cut to `room` bytes.
///
/// # Safety
/// `to` is null or has room for `room` bytes.
unsafe fn write_text(to: *mut c_char, room: c_int, text: &str) -> CuResult {
    let room =
        usize::try_from(room).ok().filter(|room| *room > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    require(!to.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let length = text.len().min(room - 1);
    // SAFETY: the caller promises room for `room` bytes, and `length` is below `room`.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length) };
    // SAFETY: `length` is below `room`, so the 0 has room, too.
    unsafe { to.add(length).write(0) };
    Ok(())
}

fn pci_text(of: &DeviceFacts) -> String {
    let [domain, bus, device] = of.pci;
    format!("{domain:04x}:{bus:02x}:{device:02x}.0")
}

cu_entry! {
    fn cuDeviceGet(result: *mut CUdevice, ordinal: c_int) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device(ordinal)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, device.number()) };
        Ok(())
    }
    fn cuDeviceGetCount(count: *mut c_int) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let devices = c_int::try_from(platform::devices()?.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, devices) };
        Ok(())
    }
    fn cuDeviceGetName(name: *mut c_char, room: c_int, dev: CUdevice) {
        let device = platform::device(dev)?;
        // SAFETY: the program promises what `write_text` demands.
        unsafe { write_text(name, room, &device.facts.name) }
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) {
        require(!bytes.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let total = platform::device(dev)?.space.total();
        // SAFETY: the program promises that `bytes` is null or writable.
        unsafe { store(bytes, usize::try_from(total).unwrap_or(usize::MAX)) };
        Ok(())
    }
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, dev: CUdevice) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let answer = attribute::of_device(platform::device(dev)?, attribute)?;
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, answer) };
        Ok(())
    }
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) {
        require(!major.is_null() && !minor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device(dev)?;
        let capability = [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
        let [first, second] = capability.map(|part| attribute::of_device(device, part));
        // SAFETY: the program promises that `major` is null or writable.
        unsafe { store(major, first?) };
        // SAFETY: the program promises that `minor` is null or writable.
        unsafe { store(minor, second?) };
        Ok(())
    }
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
            SIMDWidth: capability::WARP,
            memPitch: of(CU_DEVICE_ATTRIBUTE_MAX_PITCH)?,
            regsPerBlock: of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
            clockRate: of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            textureAlign: of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
        };
        // SAFETY: the program promises that `properties` is null or writable.
        unsafe { store(properties, answer) };
        Ok(())
    }
    /// Both versions tell the same, because no device here has parts.
    fn cuDeviceGetUuid, cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) {
        require(!uuid.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let bytes = platform::device(dev)?.facts.uuid;
        // SAFETY: the program promises that `uuid` is null or writable.
        unsafe { store(uuid, CUuuid { bytes }) };
        Ok(())
    }
    /// Always fails, because only Windows has LUIDs.
    fn cuDeviceGetLuid(_luid: *mut c_char, _mask: *mut c_uint, dev: CUdevice) {
        platform::device(dev)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    fn cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, dev: CUdevice) {
        let device = platform::device(dev)?;
        // SAFETY: the program promises what `write_text` demands.
        unsafe { write_text(id, room, &pci_text(&device.facts)) }
    }
    /// The identifier has the form `[domain]:[bus]:[device].[function]`. Domain and function may be
    /// missing.
    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) {
        require(!dev.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `id` is null or a string.
        let id = unsafe { text(id) }?.to_str().map_err(|_| CUDA_ERROR_INVALID_VALUE)?.to_ascii_lowercase();
        let id = if id.contains('.') { id } else { format!("{id}.0") };
        let found = platform::devices()?.iter().find(|device| {
            let full = pci_text(&device.facts);
            full == id || (device.facts.pci[0] == 0 && full.ends_with(&id) && id.len() + 5 == full.len())
        });
        // SAFETY: the program promises that `dev` is null or writable.
        unsafe { store(dev, found.ok_or(CUDA_ERROR_INVALID_DEVICE)?.number()) };
        Ok(())
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, _format: c_uint, _channels: c_uint, dev: CUdevice) {
        require(!width.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let most = attribute::of_device(platform::device(dev)?, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?;
        // SAFETY: the program promises that `width` is null or writable.
        unsafe { store(width, usize::try_from(most).unwrap_or(0)) };
        Ok(())
    }
    /// Always 0, because no device here can be divided.
    fn cuDeviceGetExecAffinitySupport(supported: *mut c_int, _kind: c_uint, dev: CUdevice) {
        require(!supported.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::device(dev)?;
        // SAFETY: the program promises that `supported` is null or writable.
        unsafe { store(supported, 0) };
        Ok(())
    }
}
