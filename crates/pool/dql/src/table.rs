//! The table of attributes. Each row has a name, the source of its value, and its type.
//!
//! It contains all scalars, arrays and texts of `clGetDeviceInfo` in OpenCL 1.2 to 3.0; handles are
//! useless in a query. It also contains additions of extensions and vendors by which people choose
//! devices, and properties of the node.

use penstock_cl_sys::*;

use crate::kind::NodeAttribute as N;
use crate::kind::Source::{Info, Node};
use crate::kind::{Entry, Kind, Named, Source};

const fn entry(name: &'static str, source: Source, kind: Kind) -> Entry {
    Entry { name, source, kind }
}

/// Makes the entry of a query. Its name is that of the constant in lower case, without
/// `CL_DEVICE_`.
macro_rules! info {
    ($constant:ident, $kind:expr) => {{
        const NAME: [u8; stringify!($constant).len() - "CL_DEVICE_".len()] =
            lower_end(stringify!($constant));
        match std::str::from_utf8(&NAME) {
            Ok(name) => entry(name, Info($constant), $kind),
            Err(_) => panic!("a name is not ASCII"),
        }
    }};
}

/// Returns the last `LENGTH` bytes of a name, in lower case.
const fn lower_end<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (_, end) = name.as_bytes().split_at(name.len() - LENGTH);
    let mut lower = [0; LENGTH];
    lower.copy_from_slice(end);
    lower.make_ascii_lowercase();
    lower
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
    info!(CL_DEVICE_TYPE, Kind::Type(TYPES)),
    info!(CL_DEVICE_VENDOR_ID, Kind::Number),
    info!(CL_DEVICE_MAX_COMPUTE_UNITS, Kind::Number),
    info!(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, Kind::Number),
    info!(CL_DEVICE_MAX_WORK_GROUP_SIZE, Kind::Number),
    info!(CL_DEVICE_MAX_WORK_ITEM_SIZES, Kind::Numbers),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, Kind::Number),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT, Kind::Number),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, Kind::Number),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG, Kind::Number),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, Kind::Number),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, Kind::Number),
    info!(CL_DEVICE_MAX_CLOCK_FREQUENCY, Kind::Frequency),
    info!(CL_DEVICE_ADDRESS_BITS, Kind::Number),
    info!(CL_DEVICE_MAX_READ_IMAGE_ARGS, Kind::Number),
    info!(CL_DEVICE_MAX_WRITE_IMAGE_ARGS, Kind::Number),
    info!(CL_DEVICE_MAX_MEM_ALLOC_SIZE, Kind::Bytes),
    info!(CL_DEVICE_IMAGE2D_MAX_WIDTH, Kind::Number),
    info!(CL_DEVICE_IMAGE2D_MAX_HEIGHT, Kind::Number),
    info!(CL_DEVICE_IMAGE3D_MAX_WIDTH, Kind::Number),
    info!(CL_DEVICE_IMAGE3D_MAX_HEIGHT, Kind::Number),
    info!(CL_DEVICE_IMAGE3D_MAX_DEPTH, Kind::Number),
    info!(CL_DEVICE_IMAGE_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_MAX_PARAMETER_SIZE, Kind::Bytes),
    info!(CL_DEVICE_MAX_SAMPLERS, Kind::Number),
    info!(CL_DEVICE_MEM_BASE_ADDR_ALIGN, Kind::Number),
    info!(CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, Kind::Bytes),
    info!(CL_DEVICE_SINGLE_FP_CONFIG, Kind::Flags(FP_CONFIG)),
    info!(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, Kind::Choice(CACHE_TYPES)),
    info!(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, Kind::Bytes),
    info!(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, Kind::Bytes),
    info!(CL_DEVICE_GLOBAL_MEM_SIZE, Kind::Bytes),
    info!(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, Kind::Bytes),
    info!(CL_DEVICE_MAX_CONSTANT_ARGS, Kind::Number),
    info!(CL_DEVICE_LOCAL_MEM_TYPE, Kind::Choice(LOCAL_MEM_TYPES)),
    info!(CL_DEVICE_LOCAL_MEM_SIZE, Kind::Bytes),
    info!(CL_DEVICE_ERROR_CORRECTION_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_PROFILING_TIMER_RESOLUTION, Kind::Number),
    info!(CL_DEVICE_ENDIAN_LITTLE, Kind::Bool),
    info!(CL_DEVICE_AVAILABLE, Kind::Bool),
    info!(CL_DEVICE_COMPILER_AVAILABLE, Kind::Bool),
    info!(CL_DEVICE_EXECUTION_CAPABILITIES, Kind::Flags(EXECUTION)),
    info!(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, Kind::Flags(QUEUE)),
    info!(CL_DEVICE_NAME, Kind::Text),
    info!(CL_DEVICE_VENDOR, Kind::Text),
    entry("driver_version", Info(CL_DRIVER_VERSION), Kind::VersionText),
    info!(CL_DEVICE_PROFILE, Kind::Text),
    info!(CL_DEVICE_VERSION, Kind::VersionText),
    info!(CL_DEVICE_EXTENSIONS, Kind::Tokens),
    info!(CL_DEVICE_DOUBLE_FP_CONFIG, Kind::Flags(FP_CONFIG)),
    info!(CL_DEVICE_HALF_FP_CONFIG, Kind::Flags(FP_CONFIG)),
    info!(CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF, Kind::Number),
    info!(CL_DEVICE_HOST_UNIFIED_MEMORY, Kind::Bool),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, Kind::Number),
    info!(CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, Kind::Number),
    info!(CL_DEVICE_OPENCL_C_VERSION, Kind::VersionText),
    info!(CL_DEVICE_LINKER_AVAILABLE, Kind::Bool),
    info!(CL_DEVICE_BUILT_IN_KERNELS, Kind::Tokens),
    info!(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, Kind::Number),
    info!(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, Kind::Number),
    info!(CL_DEVICE_PARTITION_MAX_SUB_DEVICES, Kind::Number),
    info!(CL_DEVICE_PARTITION_PROPERTIES, Kind::Choices(PARTITIONS)),
    info!(CL_DEVICE_PARTITION_AFFINITY_DOMAIN, Kind::Flags(AFFINITY)),
    info!(CL_DEVICE_PARTITION_TYPE, Kind::Choices(PARTITIONS)),
    info!(CL_DEVICE_REFERENCE_COUNT, Kind::Number),
    info!(CL_DEVICE_PREFERRED_INTEROP_USER_SYNC, Kind::Bool),
    info!(CL_DEVICE_PRINTF_BUFFER_SIZE, Kind::Bytes),
    info!(CL_DEVICE_IMAGE_PITCH_ALIGNMENT, Kind::Number),
    info!(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, Kind::Number),
    info!(CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, Kind::Number),
    info!(CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE, Kind::Bytes),
    info!(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES, Kind::Flags(QUEUE)),
    info!(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE, Kind::Bytes),
    info!(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE, Kind::Bytes),
    info!(CL_DEVICE_MAX_ON_DEVICE_QUEUES, Kind::Number),
    info!(CL_DEVICE_MAX_ON_DEVICE_EVENTS, Kind::Number),
    info!(CL_DEVICE_SVM_CAPABILITIES, Kind::Flags(SVM)),
    info!(CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE, Kind::Bytes),
    info!(CL_DEVICE_MAX_PIPE_ARGS, Kind::Number),
    info!(CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS, Kind::Number),
    info!(CL_DEVICE_PIPE_MAX_PACKET_SIZE, Kind::Bytes),
    info!(CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT, Kind::Bytes),
    info!(CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT, Kind::Bytes),
    info!(CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT, Kind::Bytes),
    info!(CL_DEVICE_IL_VERSION, Kind::Tokens),
    info!(CL_DEVICE_MAX_NUM_SUB_GROUPS, Kind::Number),
    info!(CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS, Kind::Bool),
    info!(CL_DEVICE_NUMERIC_VERSION, Kind::Version),
    info!(CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR, Kind::Version),
    info!(CL_DEVICE_EXTENSIONS_WITH_VERSION, Kind::Names),
    info!(CL_DEVICE_ILS_WITH_VERSION, Kind::Names),
    info!(CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION, Kind::Names),
    info!(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, Kind::Flags(ATOMICS)),
    info!(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, Kind::Flags(ATOMICS)),
    info!(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_OPENCL_C_ALL_VERSIONS, Kind::Versions),
    info!(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, Kind::Number),
    info!(CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_OPENCL_C_FEATURES, Kind::Names),
    info!(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES, Kind::Flags(ENQUEUE)),
    info!(CL_DEVICE_PIPE_SUPPORT, Kind::Bool),
    info!(CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED, Kind::Text),
    // Extensions and vendors.
    info!(CL_DEVICE_MAX_NAMED_BARRIER_COUNT_KHR, Kind::Number),
    info!(CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, Kind::Number),
    info!(CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV, Kind::Number),
    info!(CL_DEVICE_REGISTERS_PER_BLOCK_NV, Kind::Number),
    info!(CL_DEVICE_WARP_SIZE_NV, Kind::Number),
    info!(CL_DEVICE_GPU_OVERLAP_NV, Kind::Bool),
    info!(CL_DEVICE_KERNEL_EXEC_TIMEOUT_NV, Kind::Bool),
    info!(CL_DEVICE_INTEGRATED_MEMORY_NV, Kind::Bool),
    info!(CL_DEVICE_BOARD_NAME_AMD, Kind::Text),
    info!(CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, Kind::Numbers),
    info!(CL_DEVICE_SIMD_PER_COMPUTE_UNIT_AMD, Kind::Number),
    info!(CL_DEVICE_SIMD_WIDTH_AMD, Kind::Number),
    info!(CL_DEVICE_WAVEFRONT_WIDTH_AMD, Kind::Number),
    info!(CL_DEVICE_GLOBAL_MEM_CHANNELS_AMD, Kind::Number),
    info!(CL_DEVICE_LOCAL_MEM_BANKS_AMD, Kind::Number),
    info!(CL_DEVICE_GFXIP_MAJOR_AMD, Kind::Number),
    info!(CL_DEVICE_GFXIP_MINOR_AMD, Kind::Number),
    info!(CL_DEVICE_SPIR_VERSIONS, Kind::Tokens),
    info!(CL_DEVICE_SUB_GROUP_SIZES_INTEL, Kind::Numbers),
    info!(CL_DEVICE_IP_VERSION_INTEL, Kind::Number),
    info!(CL_DEVICE_ID_INTEL, Kind::Number),
    info!(CL_DEVICE_NUM_SLICES_INTEL, Kind::Number),
    info!(CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL, Kind::Number),
    info!(CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL, Kind::Number),
    info!(CL_DEVICE_NUM_THREADS_PER_EU_INTEL, Kind::Number),
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

const TYPES: &[Named] = &[
    named("cpu", CL_DEVICE_TYPE_CPU),
    named("gpu", CL_DEVICE_TYPE_GPU),
    named("accelerator", CL_DEVICE_TYPE_ACCELERATOR),
    named("custom", CL_DEVICE_TYPE_CUSTOM),
];

const FP_CONFIG: &[Named] = &[
    named("denorm", CL_FP_DENORM),
    named("inf_nan", CL_FP_INF_NAN),
    named("round_to_nearest", CL_FP_ROUND_TO_NEAREST),
    named("round_to_zero", CL_FP_ROUND_TO_ZERO),
    named("round_to_inf", CL_FP_ROUND_TO_INF),
    named("fma", CL_FP_FMA),
    named("soft_float", CL_FP_SOFT_FLOAT),
    named("correctly_rounded_divide_sqrt", CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT),
];

const CACHE_TYPES: &[Named] = &[
    named("none", CL_NONE as u64),
    named("read_only", CL_READ_ONLY_CACHE as u64),
    named("read_write", CL_READ_WRITE_CACHE as u64),
];

const LOCAL_MEM_TYPES: &[Named] = &[
    named("none", CL_NONE as u64),
    named("local", CL_LOCAL as u64),
    named("global", CL_GLOBAL as u64),
];

const EXECUTION: &[Named] =
    &[named("kernel", CL_EXEC_KERNEL), named("native_kernel", CL_EXEC_NATIVE_KERNEL)];

const QUEUE: &[Named] = &[
    named("out_of_order", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
    named("profiling", CL_QUEUE_PROFILING_ENABLE),
    named("on_device", CL_QUEUE_ON_DEVICE),
    named("on_device_default", CL_QUEUE_ON_DEVICE_DEFAULT),
];

const PARTITIONS: &[Named] = &[
    named("equally", CL_DEVICE_PARTITION_EQUALLY as u64),
    named("by_counts", CL_DEVICE_PARTITION_BY_COUNTS as u64),
    named("by_affinity_domain", CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN as u64),
];

const AFFINITY: &[Named] = &[
    named("numa", CL_DEVICE_AFFINITY_DOMAIN_NUMA),
    named("l4_cache", CL_DEVICE_AFFINITY_DOMAIN_L4_CACHE),
    named("l3_cache", CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE),
    named("l2_cache", CL_DEVICE_AFFINITY_DOMAIN_L2_CACHE),
    named("l1_cache", CL_DEVICE_AFFINITY_DOMAIN_L1_CACHE),
    named("next_partitionable", CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE),
];

const SVM: &[Named] = &[
    named("coarse_grain_buffer", CL_DEVICE_SVM_COARSE_GRAIN_BUFFER),
    named("fine_grain_buffer", CL_DEVICE_SVM_FINE_GRAIN_BUFFER),
    named("fine_grain_system", CL_DEVICE_SVM_FINE_GRAIN_SYSTEM),
    named("atomics", CL_DEVICE_SVM_ATOMICS),
];

const ATOMICS: &[Named] = &[
    named("order_relaxed", CL_DEVICE_ATOMIC_ORDER_RELAXED),
    named("order_acq_rel", CL_DEVICE_ATOMIC_ORDER_ACQ_REL),
    named("order_seq_cst", CL_DEVICE_ATOMIC_ORDER_SEQ_CST),
    named("scope_work_item", CL_DEVICE_ATOMIC_SCOPE_WORK_ITEM),
    named("scope_work_group", CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP),
    named("scope_device", CL_DEVICE_ATOMIC_SCOPE_DEVICE),
    named("scope_all_devices", CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES),
];

const ENQUEUE: &[Named] = &[
    named("supported", CL_DEVICE_QUEUE_SUPPORTED),
    named("replaceable_default", CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT),
];
