//! The table of attributes. Each row has a name, the source of its value, and its type.
//!
//! It contains all scalars, arrays and texts of `clGetDeviceInfo` in OpenCL 1.2 to 3.0; handles are
//! useless in a query. It also contains additions of extensions and vendors by which people choose
//! devices, and properties of the node.

use crate::kind::NodeAttribute as N;
use crate::kind::Source::{Info, Node};
use crate::kind::{Entry, Kind, Named, Source};

const fn entry(name: &'static str, source: Source, kind: Kind) -> Entry {
    Entry { name, source, kind }
}

const fn named(name: &'static str, value: u64) -> Named {
    Named { name, value }
}

pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("global_memory", "global_mem_size"),
    ("memory", "global_mem_size"),
    ("local_memory", "local_mem_size"),
    ("constant_memory", "max_constant_buffer_size"),
    ("max_allocation", "max_mem_alloc_size"),
    ("compute_units", "max_compute_units"),
    ("units", "max_compute_units"),
    ("clock", "max_clock_frequency"),
    ("clock_frequency", "max_clock_frequency"),
    ("work_group_size", "max_work_group_size"),
    ("work_item_sizes", "max_work_item_sizes"),
    ("sub_groups", "max_num_sub_groups"),
    ("unified_memory", "host_unified_memory"),
    ("driver", "driver_version"),
    ("opencl_version", "version"),
    ("queue_properties", "queue_on_host_properties"),
    ("compute_capability_major", "compute_capability_major_nv"),
    ("compute_capability_minor", "compute_capability_minor_nv"),
    ("host", "hostname"),
    ("index", "device_index"),
    ("bandwidth", "link_bandwidth"),
    ("latency", "link_latency"),
];

pub(crate) const ENTRIES: &[Entry] = &[
    // OpenCL 1.2 to 3.0.
    entry("type", Info(0x1000), Kind::Type(TYPES)),
    entry("vendor_id", Info(0x1001), Kind::Number),
    entry("max_compute_units", Info(0x1002), Kind::Number),
    entry("max_work_item_dimensions", Info(0x1003), Kind::Number),
    entry("max_work_group_size", Info(0x1004), Kind::Number),
    entry("max_work_item_sizes", Info(0x1005), Kind::Numbers),
    entry("preferred_vector_width_char", Info(0x1006), Kind::Number),
    entry("preferred_vector_width_short", Info(0x1007), Kind::Number),
    entry("preferred_vector_width_int", Info(0x1008), Kind::Number),
    entry("preferred_vector_width_long", Info(0x1009), Kind::Number),
    entry("preferred_vector_width_float", Info(0x100A), Kind::Number),
    entry("preferred_vector_width_double", Info(0x100B), Kind::Number),
    entry("max_clock_frequency", Info(0x100C), Kind::Frequency),
    entry("address_bits", Info(0x100D), Kind::Number),
    entry("max_read_image_args", Info(0x100E), Kind::Number),
    entry("max_write_image_args", Info(0x100F), Kind::Number),
    entry("max_mem_alloc_size", Info(0x1010), Kind::Bytes),
    entry("image2d_max_width", Info(0x1011), Kind::Number),
    entry("image2d_max_height", Info(0x1012), Kind::Number),
    entry("image3d_max_width", Info(0x1013), Kind::Number),
    entry("image3d_max_height", Info(0x1014), Kind::Number),
    entry("image3d_max_depth", Info(0x1015), Kind::Number),
    entry("image_support", Info(0x1016), Kind::Bool),
    entry("max_parameter_size", Info(0x1017), Kind::Bytes),
    entry("max_samplers", Info(0x1018), Kind::Number),
    entry("mem_base_addr_align", Info(0x1019), Kind::Number),
    entry("min_data_type_align_size", Info(0x101A), Kind::Bytes),
    entry("single_fp_config", Info(0x101B), Kind::Flags(FP_CONFIG)),
    entry("global_mem_cache_type", Info(0x101C), Kind::Choice(CACHE_TYPES)),
    entry("global_mem_cacheline_size", Info(0x101D), Kind::Bytes),
    entry("global_mem_cache_size", Info(0x101E), Kind::Bytes),
    entry("global_mem_size", Info(0x101F), Kind::Bytes),
    entry("max_constant_buffer_size", Info(0x1020), Kind::Bytes),
    entry("max_constant_args", Info(0x1021), Kind::Number),
    entry("local_mem_type", Info(0x1022), Kind::Choice(LOCAL_MEM_TYPES)),
    entry("local_mem_size", Info(0x1023), Kind::Bytes),
    entry("error_correction_support", Info(0x1024), Kind::Bool),
    entry("profiling_timer_resolution", Info(0x1025), Kind::Number),
    entry("endian_little", Info(0x1026), Kind::Bool),
    entry("available", Info(0x1027), Kind::Bool),
    entry("compiler_available", Info(0x1028), Kind::Bool),
    entry("execution_capabilities", Info(0x1029), Kind::Flags(EXECUTION)),
    entry("queue_on_host_properties", Info(0x102A), Kind::Flags(QUEUE)),
    entry("name", Info(0x102B), Kind::Text),
    entry("vendor", Info(0x102C), Kind::Text),
    entry("driver_version", Info(0x102D), Kind::VersionText),
    entry("profile", Info(0x102E), Kind::Text),
    entry("version", Info(0x102F), Kind::VersionText),
    entry("extensions", Info(0x1030), Kind::Tokens),
    entry("double_fp_config", Info(0x1032), Kind::Flags(FP_CONFIG)),
    entry("half_fp_config", Info(0x1033), Kind::Flags(FP_CONFIG)),
    entry("preferred_vector_width_half", Info(0x1034), Kind::Number),
    entry("host_unified_memory", Info(0x1035), Kind::Bool),
    entry("native_vector_width_char", Info(0x1036), Kind::Number),
    entry("native_vector_width_short", Info(0x1037), Kind::Number),
    entry("native_vector_width_int", Info(0x1038), Kind::Number),
    entry("native_vector_width_long", Info(0x1039), Kind::Number),
    entry("native_vector_width_float", Info(0x103A), Kind::Number),
    entry("native_vector_width_double", Info(0x103B), Kind::Number),
    entry("native_vector_width_half", Info(0x103C), Kind::Number),
    entry("opencl_c_version", Info(0x103D), Kind::VersionText),
    entry("linker_available", Info(0x103E), Kind::Bool),
    entry("built_in_kernels", Info(0x103F), Kind::Tokens),
    entry("image_max_buffer_size", Info(0x1040), Kind::Number),
    entry("image_max_array_size", Info(0x1041), Kind::Number),
    entry("partition_max_sub_devices", Info(0x1043), Kind::Number),
    entry("partition_properties", Info(0x1044), Kind::Choices(PARTITIONS)),
    entry("partition_affinity_domain", Info(0x1045), Kind::Flags(AFFINITY)),
    entry("partition_type", Info(0x1046), Kind::Choices(PARTITIONS)),
    entry("reference_count", Info(0x1047), Kind::Number),
    entry("preferred_interop_user_sync", Info(0x1048), Kind::Bool),
    entry("printf_buffer_size", Info(0x1049), Kind::Bytes),
    entry("image_pitch_alignment", Info(0x104A), Kind::Number),
    entry("image_base_address_alignment", Info(0x104B), Kind::Number),
    entry("max_read_write_image_args", Info(0x104C), Kind::Number),
    entry("max_global_variable_size", Info(0x104D), Kind::Bytes),
    entry("queue_on_device_properties", Info(0x104E), Kind::Flags(QUEUE)),
    entry("queue_on_device_preferred_size", Info(0x104F), Kind::Bytes),
    entry("queue_on_device_max_size", Info(0x1050), Kind::Bytes),
    entry("max_on_device_queues", Info(0x1051), Kind::Number),
    entry("max_on_device_events", Info(0x1052), Kind::Number),
    entry("svm_capabilities", Info(0x1053), Kind::Flags(SVM)),
    entry("global_variable_preferred_total_size", Info(0x1054), Kind::Bytes),
    entry("max_pipe_args", Info(0x1055), Kind::Number),
    entry("pipe_max_active_reservations", Info(0x1056), Kind::Number),
    entry("pipe_max_packet_size", Info(0x1057), Kind::Bytes),
    entry("preferred_platform_atomic_alignment", Info(0x1058), Kind::Bytes),
    entry("preferred_global_atomic_alignment", Info(0x1059), Kind::Bytes),
    entry("preferred_local_atomic_alignment", Info(0x105A), Kind::Bytes),
    entry("il_version", Info(0x105B), Kind::Tokens),
    entry("max_num_sub_groups", Info(0x105C), Kind::Number),
    entry("sub_group_independent_forward_progress", Info(0x105D), Kind::Bool),
    entry("numeric_version", Info(0x105E), Kind::Version),
    entry("opencl_c_numeric_version_khr", Info(0x105F), Kind::Version),
    entry("extensions_with_version", Info(0x1060), Kind::Names),
    entry("ils_with_version", Info(0x1061), Kind::Names),
    entry("built_in_kernels_with_version", Info(0x1062), Kind::Names),
    entry("atomic_memory_capabilities", Info(0x1063), Kind::Flags(ATOMICS)),
    entry("atomic_fence_capabilities", Info(0x1064), Kind::Flags(ATOMICS)),
    entry("non_uniform_work_group_support", Info(0x1065), Kind::Bool),
    entry("opencl_c_all_versions", Info(0x1066), Kind::Versions),
    entry("preferred_work_group_size_multiple", Info(0x1067), Kind::Number),
    entry("work_group_collective_functions_support", Info(0x1068), Kind::Bool),
    entry("generic_address_space_support", Info(0x1069), Kind::Bool),
    entry("opencl_c_features", Info(0x106F), Kind::Names),
    entry("device_enqueue_capabilities", Info(0x1070), Kind::Flags(ENQUEUE)),
    entry("pipe_support", Info(0x1071), Kind::Bool),
    entry("latest_conformance_version_passed", Info(0x1072), Kind::Text),
    // Extensions and vendors.
    entry("max_named_barrier_count_khr", Info(0x2035), Kind::Number),
    entry("compute_capability_major_nv", Info(0x4000), Kind::Number),
    entry("compute_capability_minor_nv", Info(0x4001), Kind::Number),
    entry("registers_per_block_nv", Info(0x4002), Kind::Number),
    entry("warp_size_nv", Info(0x4003), Kind::Number),
    entry("gpu_overlap_nv", Info(0x4004), Kind::Bool),
    entry("kernel_exec_timeout_nv", Info(0x4005), Kind::Bool),
    entry("integrated_memory_nv", Info(0x4006), Kind::Bool),
    entry("board_name_amd", Info(0x4038), Kind::Text),
    entry("global_free_memory_amd", Info(0x4039), Kind::Numbers),
    entry("simd_per_compute_unit_amd", Info(0x4040), Kind::Number),
    entry("simd_width_amd", Info(0x4041), Kind::Number),
    entry("wavefront_width_amd", Info(0x4043), Kind::Number),
    entry("global_mem_channels_amd", Info(0x4044), Kind::Number),
    entry("local_mem_banks_amd", Info(0x4048), Kind::Number),
    entry("gfxip_major_amd", Info(0x404A), Kind::Number),
    entry("gfxip_minor_amd", Info(0x404B), Kind::Number),
    entry("spir_versions", Info(0x40E0), Kind::Tokens),
    entry("sub_group_sizes_intel", Info(0x4108), Kind::Numbers),
    entry("ip_version_intel", Info(0x4250), Kind::Number),
    entry("id_intel", Info(0x4251), Kind::Number),
    entry("num_slices_intel", Info(0x4252), Kind::Number),
    entry("num_sub_slices_per_slice_intel", Info(0x4253), Kind::Number),
    entry("num_eus_per_sub_slice_intel", Info(0x4254), Kind::Number),
    entry("num_threads_per_eu_intel", Info(0x4255), Kind::Number),
    // The node.
    entry("node", Node(N::Node), Kind::Node),
    entry("hostname", Node(N::Hostname), Kind::Host),
    entry("rank", Node(N::Rank), Kind::Number),
    entry("local", Node(N::Local), Kind::Bool),
    entry("platform", Node(N::Platform), Kind::Text),
    entry("platform_version", Node(N::PlatformVersion), Kind::VersionText),
    entry("device_index", Node(N::DeviceIndex), Kind::Number),
    entry("node_devices", Node(N::NodeDevices), Kind::Number),
    entry("free_memory", Node(N::FreeMemory), Kind::Bytes),
    entry("load", Node(N::Load), Kind::Real),
    entry("link_bandwidth", Node(N::LinkBandwidth), Kind::Bytes),
    entry("link_latency", Node(N::LinkLatency), Kind::Real),
    entry("shared", Node(N::Shared), Kind::Bool),
];

const TYPES: &[Named] =
    &[named("cpu", 2), named("gpu", 4), named("accelerator", 8), named("custom", 16)];

const FP_CONFIG: &[Named] = &[
    named("denorm", 1),
    named("inf_nan", 2),
    named("round_to_nearest", 4),
    named("round_to_zero", 8),
    named("round_to_inf", 16),
    named("fma", 32),
    named("soft_float", 64),
    named("correctly_rounded_divide_sqrt", 128),
];

/// The values are `CL_NONE`, `CL_READ_ONLY_CACHE` and `CL_READ_WRITE_CACHE`.
const CACHE_TYPES: &[Named] = &[named("none", 0), named("read_only", 1), named("read_write", 2)];

/// The values are `CL_NONE`, `CL_LOCAL` and `CL_GLOBAL`.
const LOCAL_MEM_TYPES: &[Named] = &[named("none", 0), named("local", 1), named("global", 2)];

const EXECUTION: &[Named] = &[named("kernel", 1), named("native_kernel", 2)];

const QUEUE: &[Named] = &[
    named("out_of_order", 1),
    named("profiling", 2),
    named("on_device", 4),
    named("on_device_default", 8),
];

const PARTITIONS: &[Named] =
    &[named("equally", 0x1086), named("by_counts", 0x1087), named("by_affinity_domain", 0x1088)];

const AFFINITY: &[Named] = &[
    named("numa", 1),
    named("l4_cache", 2),
    named("l3_cache", 4),
    named("l2_cache", 8),
    named("l1_cache", 16),
    named("next_partitionable", 32),
];

const SVM: &[Named] = &[
    named("coarse_grain_buffer", 1),
    named("fine_grain_buffer", 2),
    named("fine_grain_system", 4),
    named("atomics", 8),
];

const ATOMICS: &[Named] = &[
    named("order_relaxed", 1),
    named("order_acq_rel", 2),
    named("order_seq_cst", 4),
    named("scope_work_item", 8),
    named("scope_work_group", 16),
    named("scope_device", 32),
    named("scope_all_devices", 64),
];

/// The values are `CL_DEVICE_QUEUE_SUPPORTED` and `CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT`.
const ENQUEUE: &[Named] = &[named("supported", 1), named("replaceable_default", 2)];
