//! What the devices say of themselves.

use penstock_device::{Device, Platform};
use penstock_wire::describe::find;

use crate::command::DeviceInfo;

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u64 = 1 << 0;
/// `CL_DEVICE_QUEUE_ON_HOST_PROPERTIES`.
const QUEUE_PROPERTIES: u32 = 0x102A;
/// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;

/// The largest memory object that a device allows, in bytes.
pub(super) fn object_max(info: &DeviceInfo) -> u64 {
    number(info, MAX_MEM_ALLOC_SIZE)
}

/// A number of 8 bytes that a device says of itself; 0 where it says none.
fn number(info: &DeviceInfo, name: u32) -> u64 {
    let bytes = info.get(name).and_then(|bytes| bytes.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The bit of a queue's properties, if the device can.
pub(super) fn out_of_order(device: &Device) -> u64 {
    let info = device.info();
    let bytes = find(&info, QUEUE_PROPERTIES).and_then(|bytes| bytes.first_chunk::<8>());
    let bits = bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    bits & OUT_OF_ORDER
}

/// What queries see of a device.
pub(super) fn describe(platform: &Platform, device: &Device) -> DeviceInfo {
    const CL_PLATFORM_VERSION: u32 = 0x0901;
    let about = platform.info();
    let version = find(&about, CL_PLATFORM_VERSION);
    DeviceInfo {
        info: device.info(),
        platform: platform.name(),
        platform_version: String::from_utf8_lossy(version.unwrap_or_default())
            .trim_end_matches('\0')
            .to_owned(),
        hostname: crate::runtime::hostname(),
        in_pool: None,
    }
}
