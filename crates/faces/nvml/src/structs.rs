//! NVML's structures that are filled in here, in C's layout.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::mem::offset_of;

/// Structure of the first `nvmlDeviceGetPciInfo`, whose name has no version. A program that looks
/// up this name may have room for this structure only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfoV1 {
    pub(crate) bus_id: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
}

/// Structure that `nvmlDeviceGetPciInfo_v2` fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfoV2 {
    pub(crate) first: PciInfoV1,
    pub(crate) pci_sub_system_id: c_uint,
    pub(crate) reserved: [c_uint; 4],
}

/// `nvmlPciInfo_t`, used since version 3 of its function.
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

/// `nvmlMemory_t`: sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`: sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2`: the size of the structure, and version 2 in the highest byte.
#[allow(clippy::cast_possible_truncation, reason = "40 bytes")]
pub(crate) const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

/// `nvmlUtilization_t`: percentages of time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// Sizes and offsets as in NVML's header.
const _: () = {
    assert!(size_of::<PciInfoV1>() == 32 && offset_of!(PciInfoV1, domain) == 16);
    assert!(size_of::<PciInfoV2>() == 52 && offset_of!(PciInfoV2, pci_sub_system_id) == 32);
    assert!(size_of::<PciInfo>() == 68 && offset_of!(PciInfo, bus_id) == 36);
    assert!(size_of::<Memory>() == 24 && offset_of!(Memory, used) == 16);
    assert!(size_of::<MemoryV2>() == 40 && offset_of!(MemoryV2, total) == 8);
    assert!(size_of::<Utilization>() == 8);
};
