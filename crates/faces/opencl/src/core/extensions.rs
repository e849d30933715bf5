//! The extensions of a device that are passed on. Extensions of the kernel language need only the
//! device's compiler. Extensions of the API need functions of ours.

use penstock_cl_sys::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_EXTENSIONS_WITH_VERSION, CL_NAME_VERSION_MAX_NAME_SIZE,
    cl_name_version, cl_version,
};
use penstock_client::Device;
use std::ffi::c_char;

/// Extensions of the platform itself, and their versions.
const OWN: [(&str, cl_version); 1] = [("cl_khr_icd", version(2, 0, 0))];

/// Symmetric heaps, on devices that compute on host memory, where other kernels reach them.
const HEAPS: (&str, cl_version) = ("cl_penstock_global_buffer", version(0, 1, 0));

/// Extensions of the API that are not served. A `*` stands for any rest of the name.
const NOT_SERVED: &[&str] = &[
    "cl_khr_icd",
    "cl_khr_gl_*",
    "cl_khr_egl_*",
    "cl_khr_d3d1*",
    "cl_khr_dx9_*",
    "cl_khr_external_*",
    "cl_khr_semaphore*",
    "cl_khr_command_buffer*",
    "cl_khr_terminate_context",
    "cl_khr_initialize_memory",
    "cl_khr_priority_hints",
    "cl_khr_throttle_hints",
    "cl_khr_mipmap_image*",
    "cl_khr_unified_svm",
    "cl_khr_spirv_queries",
    "cl_ext_device_fission",
    "cl_ext_migrate_memobject",
    "cl_ext_image_requirements_info",
    "cl_ext_image_from_buffer",
    "cl_ext_immutable_memory_objects",
    "cl_ext_cxx_for_opencl",
    "cl_ext_buffer_device_address",
    "cl_exp_*",
    "cl_pocl_*",
    "cl_intel_accelerator",
    "cl_intel_advanced_motion_estimation",
    "cl_intel_command_queue_families",
    "cl_intel_concurrent_dispatch",
    "cl_intel_create_buffer_with_properties",
    "cl_intel_d3d*",
    "cl_intel_device_partition_by_names",
    "cl_intel_driver_diagnostics",
    "cl_intel_dx9_media_sharing",
    "cl_intel_egl_image_yuv",
    "cl_intel_exec_by_local_thread",
    "cl_intel_external_memory*",
    "cl_intel_mem_*",
    "cl_intel_motion_estimation",
    "cl_intel_packed_yuv",
    "cl_intel_planar_yuv",
    "cl_intel_program_scope_host_pipe",
    "cl_intel_queue_no_sync_operations",
    "cl_intel_sharing_format_query",
    "cl_intel_simultaneous_sharing",
    "cl_intel_unified_shared_memory*",
    "cl_intel_va_api_media_sharing",
    "cl_nv_create_buffer",
    "cl_nv_d3d*",
    "cl_nv_kernel_attribute",
    "cl_amd_bus_addressable_memory",
    "cl_amd_copy_buffer_p2p",
    "cl_amd_offline_devices",
    "cl_amd_assembly_program",
    "cl_amd_liquid_flash",
    "cl_amd_svm",
    "cl_arm_controlled_kernel_termination",
    "cl_arm_get_core_id",
    "cl_arm_import_memory*",
    "cl_arm_job_slot_selection",
    "cl_arm_printf",
    "cl_arm_protected_memory_allocation",
    "cl_arm_scheduling_controls",
    "cl_arm_shared_virtual_memory",
    "cl_arm_thread_limit_hint",
    "cl_img_*",
    "cl_qcom_*",
    "cl_altera_*",
    "cl_xilinx_*",
    "cl_APPLE_*",
];

/// Returns whether a program may use this extension of a device through the pool.
pub(crate) fn is_served(name: &str) -> bool {
    !NOT_SERVED.iter().any(|known| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *known,
    })
}

/// Returns the served ones of a driver's `CL_DEVICE_EXTENSIONS` in `raw`. With `heaps` the result
/// includes the extension for symmetric heaps.
pub(crate) fn names(raw: &[u8], heaps: bool) -> String {
    let raw = String::from_utf8_lossy(raw);
    let names = raw.trim_end_matches('\0').split_ascii_whitespace().filter(|name| is_served(name));
    names.chain(heaps.then_some(HEAPS.0)).collect::<Vec<_>>().join(" ")
}

/// Like [`names`], for `CL_DEVICE_EXTENSIONS_WITH_VERSION`.
pub(crate) fn with_version(raw: &[u8], heaps: bool) -> Vec<u8> {
    let entries = raw.chunks_exact(size_of::<cl_name_version>());
    let mut served: Vec<u8> =
        entries.filter(|entry| is_served(&name_of(entry))).flatten().copied().collect();
    if heaps {
        let own = named(HEAPS.0, HEAPS.1);
        served.extend(own.version.to_ne_bytes());
        served.extend(own.name.iter().map(|byte| *byte as u8));
    }
    served
}

fn name_of(entry: &[u8]) -> String {
    let name = entry.get(size_of::<cl_version>()..).unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
}

/// Returns the extensions that all devices of a platform share, and the platform's own.
pub(crate) fn common(devices: &[std::sync::Arc<Device>]) -> Vec<cl_name_version> {
    let mut common = OWN.map(|(name, version)| named(name, version)).to_vec();
    let Some((first, others)) = devices.split_first() else { return common };
    let others: Vec<String> = others.iter().map(|device| of_device(device)).collect();
    let all_have =
        |name: &str| others.iter().all(|other| other.split(' ').any(|other| other == name));
    for name in of_device(first).split(' ').filter(|name| !name.is_empty() && all_have(name)) {
        common.push(named(name, version_of(first, name)));
    }
    common
}

fn of_device(device: &Device) -> String {
    device
        .info(CL_DEVICE_EXTENSIONS)
        .map(|raw| names(raw, device.shares_host_memory()))
        .unwrap_or_default()
}

fn version_of(device: &Device, name: &str) -> cl_version {
    if name == HEAPS.0 {
        return HEAPS.1;
    }
    let all = device.info(CL_DEVICE_EXTENSIONS_WITH_VERSION).unwrap_or_default();
    let mut entries = all.chunks_exact(size_of::<cl_name_version>());
    let entry = entries.find(|entry| name_of(entry) == name);
    let number = entry.and_then(|entry| entry.first_chunk::<4>());
    // Drivers before OpenCL 3.0 do not report versions. The specification starts with 1.0.0.
    number.map_or(version(1, 0, 0), |number| cl_version::from_ne_bytes(*number))
}

fn named(name: &str, version: cl_version) -> cl_name_version {
    let mut text: [c_char; CL_NAME_VERSION_MAX_NAME_SIZE as usize] = [0; _];
    // The last place stays 0.
    for (to, from) in
        text.iter_mut().take(CL_NAME_VERSION_MAX_NAME_SIZE as usize - 1).zip(name.bytes())
    {
        *to = from.cast_signed() as c_char;
    }
    cl_name_version { version, name: text }
}

/// Returns the name in an entry.
pub(crate) fn text(entry: &cl_name_version) -> String {
    let bytes = entry.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// Equivalent of the macro `CL_MAKE_VERSION`.
pub(crate) const fn version(major: u32, minor: u32, patch: u32) -> cl_version {
    (major << 22) | (minor << 12) | patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_the_language_pass() {
        let raw = b"cl_khr_fp64 cl_khr_gl_sharing  cl_khr_icd cl_intel_subgroups cl_khr_command_buffer_multi_device \0";
        assert_eq!(names(raw, false), "cl_khr_fp64 cl_intel_subgroups");
        assert_eq!(names(raw, true), "cl_khr_fp64 cl_intel_subgroups cl_penstock_global_buffer");
        assert_eq!(names(b"\0", false), "");
    }

    #[test]
    fn entries_with_versions_are_filtered_alike() {
        let entry = |name| {
            let entry = named(name, version(1, 2, 3));
            let mut bytes = entry.version.to_ne_bytes().to_vec();
            bytes.extend(entry.name.iter().map(|byte| *byte as u8));
            bytes
        };
        let (keep, drop) = (entry("cl_khr_fp16"), entry("cl_khr_semaphore"));
        assert_eq!(with_version(&[drop, keep.clone()].concat(), false), keep);
        assert_eq!(with_version(b"short", false), b"");
        let own = with_version(b"", true);
        assert_eq!((own.len(), name_of(&own)), (size_of::<cl_name_version>(), HEAPS.0.to_owned()));
        assert_eq!(name_of(&keep), "cl_khr_fp16");
        assert_eq!(text(&named("cl_khr_icd", 0)), "cl_khr_icd");
    }
}
