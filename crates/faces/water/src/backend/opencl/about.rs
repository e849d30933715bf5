//! Device information.

use penstock_cl_sys::{
    CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_PLATFORM_VERSION,
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
};
use penstock_device::{Device, Platform};
use penstock_wire::describe::find;

use crate::command::DeviceInfo;

/// Returns the size in bytes of the largest memory object that a device allows.
pub(super) fn object_max(info: &DeviceInfo) -> u64 {
    number(info, CL_DEVICE_MAX_MEM_ALLOC_SIZE)
}

/// Returns an 8-byte number of the device's information, or 0 if it is missing.
fn number(info: &DeviceInfo, name: u32) -> u64 {
    let bytes = info.get(name).and_then(|bytes| bytes.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Returns the queue property for out-of-order execution if the device supports it.
pub(super) fn out_of_order(device: &Device) -> u64 {
    let info = device.info();
    let bytes =
        find(&info, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES).and_then(|bytes| bytes.first_chunk::<8>());
    let bits = bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
}

/// Returns the description of a device that queries see.
pub(super) fn describe(platform: &Platform, device: &Device) -> DeviceInfo {
    let about = platform.info();
    let version = find(&about, CL_PLATFORM_VERSION);
    DeviceInfo {
        info: device.info(),
        platform: platform.name(),
        platform_version: String::from_utf8_lossy(version.unwrap_or_default())
            .trim_end_matches('\0')
            .to_owned(),
        hostname: crate::host::hostname(),
        in_pool: None,
    }
}
