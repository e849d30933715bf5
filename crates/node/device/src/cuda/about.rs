//! What a GPU tells of itself: the answers to OpenCL's queries, and CUDA's own attributes.

use penstock_cl_sys::*;
use penstock_cuda_sys::driver::*;
use penstock_wire::cuda::{Attributes, DEVICE_ATTRIBUTES_MAX, GpuDescription};
use penstock_wire::describe::{Info, Timers};
use penstock_wire::library::Libraries;
use penstock_wire::status::Status;

use super::clock;
use super::device::Device;
use super::driver::{Cuda, driver_version};
use super::library;
use crate::answer::{sizes, text, uint, ulong, yes};
use crate::driver::{DeviceDriver, Limits};

/// NVIDIA's PCI vendor id.
const VENDOR_ID: u32 = 0x10DE;
/// `cuMemAlloc` aligns to 256 bytes. This is OpenCL's minimum of 128 bytes, in bits: a smaller
/// alignment lets sub-buffers start at more offsets.
const ALIGNMENT_BITS: u32 = 1024;
/// Bytes of a kernel's packed parameters on all GPUs. Newer GPUs and drivers allow 32,764 bytes.
const PARAMETER_BYTES: usize = 4096;
/// Size of a line of the second-level cache.
const CACHE_LINE_BYTES: u32 = 128;
/// Resolution of the times of CUDA's events: about half a microsecond.
const TIMER_NS: usize = 500;
/// IEEE 754 with denormals and all rounding modes.
const FULL_FLOAT: u64 = CL_FP_DENORM
    | CL_FP_INF_NAN
    | CL_FP_ROUND_TO_NEAREST
    | CL_FP_ROUND_TO_ZERO
    | CL_FP_ROUND_TO_INF
    | CL_FP_FMA;

/// Name of the vendor of the platform and its devices.
pub(super) const VENDOR: &str = "NVIDIA Corporation";

/// Queries whose answer is 1, as an unsigned number.
const ONE: &[u32] = &[
    CL_DEVICE_REFERENCE_COUNT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_INT,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF,
    CL_DEVICE_ENDIAN_LITTLE,
    CL_DEVICE_AVAILABLE,
    CL_DEVICE_PREFERRED_INTEROP_USER_SYNC,
    CL_DEVICE_GPU_OVERLAP_NV,
];

/// Queries whose answer is 0, as an unsigned number.
const ZERO: &[u32] = &[
    CL_DEVICE_MAX_READ_IMAGE_ARGS,
    CL_DEVICE_MAX_WRITE_IMAGE_ARGS,
    CL_DEVICE_MAX_SAMPLERS,
    CL_DEVICE_MAX_CONSTANT_ARGS,
    CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
    CL_DEVICE_MAX_PIPE_ARGS,
    CL_DEVICE_COMPILER_AVAILABLE,
    CL_DEVICE_LINKER_AVAILABLE,
    CL_DEVICE_HOST_UNIFIED_MEMORY,
    CL_DEVICE_IMAGE_SUPPORT,
];

/// Queries whose answer is 0, as a size.
const NO_SIZE: &[u32] = &[
    CL_DEVICE_IMAGE2D_MAX_WIDTH,
    CL_DEVICE_IMAGE2D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_WIDTH,
    CL_DEVICE_IMAGE3D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_DEPTH,
    CL_DEVICE_IMAGE_MAX_BUFFER_SIZE,
    CL_DEVICE_IMAGE_MAX_ARRAY_SIZE,
    CL_DEVICE_PRINTF_BUFFER_SIZE,
    CL_DEVICE_PARTITION_PROPERTIES,
];

/// Formats the driver's version, like "13.0".
fn version_text(cuda: &Cuda) -> String {
    let version = driver_version(cuda);
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Returns the OpenCL version whose functions may be called. 3.0 is needed for device timers and
/// copies of kernels; most of its other features are optional.
pub(super) fn opencl_version(cuda: &Cuda) -> String {
    format!("OpenCL 3.0 CUDA {}", version_text(cuda))
}

impl Device {
    fn texts(&self) -> Info {
        let name = self.model().unwrap_or_default();
        let (driver, version) = (version_text(self.cuda()), opencl_version(self.cuda()));
        let texts = [
            (CL_DEVICE_NAME, name.as_str()),
            (CL_DEVICE_VENDOR, VENDOR),
            (CL_DRIVER_VERSION, &driver),
            (CL_DEVICE_VERSION, &version),
            (CL_DEVICE_PROFILE, "FULL_PROFILE"),
            (CL_DEVICE_OPENCL_C_VERSION, "OpenCL C 1.2"),
            (CL_DEVICE_EXTENSIONS, ""),
            (CL_DEVICE_BUILT_IN_KERNELS, ""),
        ];
        texts.map(|(name, value)| (name, text(value))).to_vec()
    }

    /// Returns the answers that depend on the GPU.
    fn sizes(&self) -> Info {
        let count = |attribute| uint(self.small(attribute));
        let size = |attribute| sizes(&[self.number(attribute)]);
        let bytes = |attribute| ulong(self.number(attribute) as u64);
        let is = |attribute| yes(self.number(attribute) != 0);
        // The driver reports kHz.
        let clock = uint(self.small(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000);
        vec![
            (CL_DEVICE_MAX_COMPUTE_UNITS, count(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)),
            (CL_DEVICE_MAX_WORK_GROUP_SIZE, size(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)),
            (CL_DEVICE_MAX_WORK_ITEM_SIZES, sizes(&self.block_sizes())),
            (CL_DEVICE_MAX_CLOCK_FREQUENCY, clock),
            (CL_DEVICE_MAX_MEM_ALLOC_SIZE, ulong(self.memory_bytes())),
            (CL_DEVICE_GLOBAL_MEM_SIZE, ulong(self.memory_bytes())),
            (CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, bytes(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)),
            (CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, bytes(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)),
            (CL_DEVICE_LOCAL_MEM_SIZE, ulong(self.shared_bytes() as u64)),
            (CL_DEVICE_ERROR_CORRECTION_SUPPORT, is(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)),
            (CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, size(CU_DEVICE_ATTRIBUTE_WARP_SIZE)),
            (
                CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV,
                count(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            ),
            (
                CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV,
                count(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            (CL_DEVICE_REGISTERS_PER_BLOCK_NV, count(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)),
            (CL_DEVICE_WARP_SIZE_NV, count(CU_DEVICE_ATTRIBUTE_WARP_SIZE)),
            (CL_DEVICE_KERNEL_EXEC_TIMEOUT_NV, is(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)),
            (CL_DEVICE_INTEGRATED_MEMORY_NV, is(CU_DEVICE_ATTRIBUTE_INTEGRATED)),
            (
                CL_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT_NV,
                count(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
            ),
            (CL_DEVICE_PCI_BUS_ID_NV, count(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)),
            (CL_DEVICE_PCI_SLOT_ID_NV, count(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)),
            (CL_DEVICE_PCI_DOMAIN_ID_NV, count(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)),
        ]
    }
}

/// Returns the answers that are the same for all GPUs.
fn fixed() -> Info {
    let numbers = [(ONE, uint(1)), (ZERO, uint(0)), (NO_SIZE, sizes(&[0]))];
    let numbers =
        numbers.iter().flat_map(|(names, bytes)| names.iter().map(|name| (*name, bytes.clone())));
    let others = [
        // CUDA's driver has no compiler for OpenCL C, and "a custom device does not support
        // programs written in OpenCL C". `CL_DEVICE_TYPE_ALL` leaves custom devices out. So a
        // program that asks for all devices gets only devices that can run its kernels.
        (CL_DEVICE_TYPE, ulong(CL_DEVICE_TYPE_CUSTOM)),
        (CL_DEVICE_VENDOR_ID, uint(VENDOR_ID)),
        (CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, uint(3)),
        (CL_DEVICE_ADDRESS_BITS, uint(u64::BITS)),
        (CL_DEVICE_MAX_PARAMETER_SIZE, sizes(&[PARAMETER_BYTES])),
        (CL_DEVICE_MEM_BASE_ADDR_ALIGN, uint(ALIGNMENT_BITS)),
        (CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, uint(ALIGNMENT_BITS / u8::BITS)),
        (CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, uint(CACHE_LINE_BYTES)),
        (CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, uint(CL_READ_WRITE_CACHE)),
        (CL_DEVICE_LOCAL_MEM_TYPE, uint(CL_LOCAL)),
        (CL_DEVICE_PROFILING_TIMER_RESOLUTION, sizes(&[TIMER_NS])),
        (CL_DEVICE_SINGLE_FP_CONFIG, ulong(FULL_FLOAT | CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)),
        (CL_DEVICE_DOUBLE_FP_CONFIG, ulong(FULL_FLOAT)),
        (CL_DEVICE_EXECUTION_CAPABILITIES, ulong(CL_EXEC_KERNEL)),
        (CL_DEVICE_QUEUE_PROPERTIES, ulong(CL_QUEUE_PROFILING_ENABLE)),
        (CL_DEVICE_SVM_CAPABILITIES, ulong(0)),
        (CL_DEVICE_PARTITION_AFFINITY_DOMAIN, ulong(0)),
        (CL_DEVICE_PARTITION_TYPE, Vec::new()),
    ];
    numbers.chain(others).collect()
}

impl DeviceDriver for &'static Device {
    fn number(&self) -> usize {
        std::ptr::from_ref::<Device>(self).addr()
    }

    fn name(&self) -> String {
        self.model().unwrap_or_default()
    }

    fn info(&self) -> Info {
        let uuid = self.uuid().ok().map(|uuid| (CL_DEVICE_UUID_KHR, uuid.to_vec()));
        self.texts().into_iter().chain(self.sizes()).chain(fixed()).chain(uuid).collect()
    }

    fn limits(&self) -> Limits {
        let memory = self.memory_bytes();
        let alignment = (ALIGNMENT_BITS / u8::BITS) as usize;
        Limits { allocation: memory, alignment, local: self.shared_bytes() as u64, memory }
    }

    fn queue_properties(&self) -> u64 {
        CL_QUEUE_PROFILING_ENABLE
    }

    fn libraries(&self) -> Option<Libraries> {
        library::served(self)
    }

    fn timers(&self) -> Result<Timers, Status> {
        // The times of events are on the host's clock, see `clock`.
        let now = clock::now();
        Ok(Timers { device: now, host: now })
    }

    fn gpu(&self) -> Option<GpuDescription> {
        Some(GpuDescription {
            driver_version: driver_version(self.cuda()),
            uuid: self.uuid().ok(),
            pci_bus_id: self.pci_bus_id().ok(),
            attributes: Attributes::ask(DEVICE_ATTRIBUTES_MAX, |it| self.attribute(it).ok()),
        })
    }
}
