//! OpenCL's C types, constants and function pointers, and some that the Khronos headers of OpenCL
//! 3.0 lack. `tools/gen-cl-sys.sh` makes [`generated`] from those headers. The crate links to no
//! library, and every crate takes OpenCL's constants from here.
//!
//! Each kind of handle is a pointer to its own type, so a `cl_mem` cannot be passed as a
//! `cl_event`.

#[allow(
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "C's names and shapes"
)]
pub mod generated;

pub use generated::*;

// -- ICD 2.0 (cl_khr_icd 2.0), which is newer than the headers --

/// Value in the slots of `clGetPlatformIDs` and `clUnloadCompiler` in the dispatch table of an ICD
/// 2.0 driver. The value is not a function, so such a table is no [`cl_icd_dispatch`]; see
/// [`slot`].
pub const CL_ICD2_TAG_KHR: usize = 0x4F50_454E_434C_3331;

/// Type of `clGetKernelSuggestedLocalWorkSizeKHR` of `cl_khr_suggested_local_work_size`. OpenCL 3.1
/// has the function without the suffix.
#[allow(non_camel_case_types, reason = "C's name")]
pub type clGetKernelSuggestedLocalWorkSizeKHR_t = Option<
    unsafe extern "C" fn(
        queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        suggested_local_work_size: *mut usize,
    ) -> cl_int,
>;

/// Number of slots of the loader's dispatch table.
pub const SLOTS: usize = size_of::<cl_icd_dispatch>() / size_of::<usize>();

/// Returns the slot of a function in the dispatch table, for instance `slot!(clFinish)`.
#[macro_export]
macro_rules! slot {
    ($function:ident) => {
        ::core::mem::offset_of!($crate::cl_icd_dispatch, $function)
            / ::core::mem::size_of::<usize>()
    };
}

/// Returns the name of a status in OpenCL's headers, or `None` if they have no such status.
pub fn status_name(status: cl_int) -> Option<&'static str> {
    STATUS_NAMES.iter().find(|(number, _)| *number == status).map(|(_, name)| *name)
}

// -- Constants that the headers of early 2023 lack, below the extension that defines them --

/// Query of the extension `cl_khr_kernel_clock`.
pub const CL_DEVICE_KERNEL_CLOCK_CAPABILITIES_KHR: cl_device_info = 0x1076;
/// Extension `cl_khr_command_buffer`: queue properties that a device supports.
pub const CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR: cl_device_info = 0x129A;
/// Extension `cl_khr_command_buffer_multi_device`: number of devices.
pub const CL_DEVICE_COMMAND_BUFFER_NUM_SYNC_DEVICES_KHR: cl_device_info = 0x12AB;
/// Extension `cl_khr_command_buffer_multi_device`: handles, valid in one process.
pub const CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR: cl_device_info = 0x12AC;
/// Extension `cl_ext_float_atomics`: single precision.
pub const CL_DEVICE_SINGLE_FP_ATOMIC_CAPABILITIES_EXT: cl_device_info = 0x4231;
/// Extension `cl_ext_float_atomics`: double precision.
pub const CL_DEVICE_DOUBLE_FP_ATOMIC_CAPABILITIES_EXT: cl_device_info = 0x4232;
/// Extension `cl_ext_float_atomics`: half precision.
pub const CL_DEVICE_HALF_FP_ATOMIC_CAPABILITIES_EXT: cl_device_info = 0x4233;
/// Address of a buffer; extension `cl_ext_buffer_device_address`.
pub const CL_MEM_DEVICE_ADDRESS_EXT: cl_mem_info = 0x5001;
/// Extension `cl_nv_device_attribute_query`: copy engines.
pub const CL_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT_NV: cl_device_info = 0x4007;
/// Extension `cl_nv_device_attribute_query`: PCI bus.
pub const CL_DEVICE_PCI_BUS_ID_NV: cl_device_info = 0x4008;
/// Extension `cl_nv_device_attribute_query`: PCI slot.
pub const CL_DEVICE_PCI_SLOT_ID_NV: cl_device_info = 0x4009;
/// Extension `cl_nv_device_attribute_query`: PCI domain.
pub const CL_DEVICE_PCI_DOMAIN_ID_NV: cl_device_info = 0x400A;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_slot_for_every_core_function() {
        // There are 114 core functions up to 3.0; the other slots belong to extensions.
        assert_eq!(CORE_FUNCTIONS.len(), 114);
        assert_eq!(SLOT_NAMES.len(), SLOTS);
        assert_eq!(SLOT_NAMES[slot!(clEnqueueSVMFree)], "clEnqueueSVMFree");
        assert_eq!(slot!(clGetPlatformIDs), 0);
        assert_eq!(slot!(clSetContextDestructorCallback), SLOTS - 1);
        let source = include_str!("generated.rs");
        let table = source
            .split_once("pub struct _cl_icd_dispatch {")
            .unwrap()
            .1
            .split_once('}')
            .unwrap()
            .0;
        assert_eq!(table.matches("pub ").count(), SLOTS);
        for (name, _) in CORE_FUNCTIONS {
            assert!(table.contains(&format!("pub {name}:")), "{name} has no slot");
        }
    }

    #[test]
    fn a_status_has_the_name_of_the_core_where_several_constants_have_its_number() {
        assert_eq!(status_name(CL_SUCCESS), Some("CL_SUCCESS"));
        assert_eq!(status_name(-1), Some("CL_DEVICE_NOT_FOUND"));
        assert_eq!(status_name(CL_OUT_OF_RESOURCES), Some("CL_OUT_OF_RESOURCES"));
        assert_eq!(status_name(CL_PLATFORM_NOT_FOUND_KHR), Some("CL_PLATFORM_NOT_FOUND_KHR"));
        assert_eq!(status_name(-9999), None);
        for (index, (number, name)) in STATUS_NAMES.iter().enumerate() {
            let rest = &STATUS_NAMES[index + 1..];
            assert!(rest.iter().all(|(other, _)| other != number), "{name}");
        }
    }

    #[test]
    fn handles_are_of_different_types() {
        use std::any::TypeId;
        assert_ne!(TypeId::of::<cl_mem>(), TypeId::of::<cl_event>());
        assert_ne!(TypeId::of::<cl_context>(), TypeId::of::<cl_command_queue>());
    }
}
