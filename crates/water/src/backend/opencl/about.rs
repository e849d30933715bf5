//! Device information.

use penstock_device::{Device, Platform};
use penstock_wire::describe::find;

use crate::command::DeviceInfo;

const OUT_OF_ORDER: u64 = 1 << 0;
const QUEUE_PROPERTIES: u32 = 0x102A;
const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;

/// Returns the size in bytes of the largest memory object that a device allows.
pub(super) fn object_max(info: &DeviceInfo) -> u64 {
    number(info, MAX_MEM_ALLOC_SIZE)
}

/// Returns an 8-byte number of the device's information, or 0 if it is missing.
fn number(info: &DeviceInfo, name: u32) -> u64 {
    let bytes = info.get(name).and_then(|bytes| bytes.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Returns the queue property for out-of-order execution if the device supports it.
pub(super) fn out_of_order(device: &Device) -> u64 {
    let info = device.info();
    let bytes = find(&info, QUEUE_PROPERTIES).and_then(|bytes| bytes.first_chunk::<8>());
    let bits = bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    bits & OUT_OF_ORDER
}

/// Returns the description of a device that queries see.
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
        hostname: crate::host::hostname(),
        in_pool: None,
    }
}
