//! NVML's structs that are filled in here, as C lays them out.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::mem::offset_of;

/// The structure of the first `nvmlDeviceGetPciInfo`, without a version in its name. Programs that look the function up by that name
/// may have this structure, and no byte more.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfoV1 {
    pub(crate) bus_id: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
}

/// The structure of `nvmlDeviceGetPciInfo_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfoV2 {
    pub(crate) first: PciInfoV1,
    pub(crate) pci_sub_system_id: c_uint,
    pub(crate) reserved: [c_uint; 4],
}

/// `nvmlPciInfo_t`, since version 3 of its function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
    pub(crate) pci_sub_system_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2`: the size of the struct, and the version in the highest byte.
#[allow(clippy::cast_possible_truncation, reason = "40 bytes")]
pub(crate) const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// Bytes and places of fields as the header of NVML has them.
const _: () = {
    assert!(size_of::<PciInfoV1>() == 32 && offset_of!(PciInfoV1, domain) == 16);
    assert!(size_of::<PciInfoV2>() == 52 && offset_of!(PciInfoV2, pci_sub_system_id) == 32);
    assert!(size_of::<PciInfo>() == 68 && offset_of!(PciInfo, bus_id) == 36);
    assert!(size_of::<Memory>() == 24 && offset_of!(Memory, used) == 16);
    assert!(size_of::<MemoryV2>() == 40 && offset_of!(MemoryV2, total) == 8);
    assert!(size_of::<Utilization>() == 8);
};
