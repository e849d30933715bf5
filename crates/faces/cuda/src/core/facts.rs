//! What the devices of the pool report of themselves.

use penstock_cl_sys::*;
use penstock_client::Device as PoolDevice;
use penstock_cuda_sys::driver::*;

use super::native::attribute::size;

/// What a device reports of itself, as far as CUDA asks.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    pub(crate) compute_units: u32,
    pub(crate) threads_max: u32,
    pub(crate) block_max: [u32; 3],
    pub(crate) clock_khz: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) cache_bytes: u64,
    pub(crate) corrects_errors: bool,
    pub(crate) fp64: bool,
    pub(crate) fp16: bool,
    /// Whether single-precision division and square root can be correctly rounded.
    pub(crate) exact_division: bool,
    pub(crate) int64_atomics: bool,
    /// PCI domain, bus and device.
    pub(crate) pci: [u32; 3],
    pub(crate) uuid: [u8; 16],
}

fn narrow(wide: u64) -> u32 {
    u32::try_from(wide).unwrap_or(u32::MAX)
}

/// Maximum number of threads of a block on every NVIDIA device. Programs and compilers rely on it.
const THREADS_MAX: u32 = 1024;

/// Maximum number of threads of a block in its third dimension on every NVIDIA device.
const BLOCK_Z_MAX: u32 = 64;

/// Shared memory that the translated code keeps for the exchange between threads of a warp, in
/// bytes: 16 for each thread of the largest block.
const EXCHANGE_BYTES: u32 = 16 * THREADS_MAX;

impl DeviceFacts {
    pub(super) fn of(device: &PoolDevice) -> Self {
        let sizes =
            device.info(CL_DEVICE_MAX_WORK_ITEM_SIZES).unwrap_or_default().as_chunks::<8>().0;
        let size =
            |axis: usize| sizes.get(axis).map_or(1, |bytes| narrow(u64::from_ne_bytes(*bytes)));
        let extensions = device.text(CL_DEVICE_EXTENSIONS);
        let has = |name: &str| extensions.split(' ').any(|word| word == name);
        let threads_max = narrow(device.number(CL_DEVICE_MAX_WORK_GROUP_SIZE)).min(THREADS_MAX);
        let mut facts = Self {
            name: device.text(CL_DEVICE_NAME),
            compute_units: narrow(device.number(CL_DEVICE_MAX_COMPUTE_UNITS)).max(1),
            threads_max,
            block_max: [
                size(0).min(threads_max),
                size(1).min(threads_max),
                size(2).min(threads_max).min(BLOCK_Z_MAX),
            ],
            clock_khz: narrow(device.number(CL_DEVICE_MAX_CLOCK_FREQUENCY)).saturating_mul(1000),
            shared_bytes: narrow(device.number(CL_DEVICE_LOCAL_MEM_SIZE))
                .saturating_sub(EXCHANGE_BYTES),
            cache_bytes: device.number(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE),
            corrects_errors: device.number(CL_DEVICE_ERROR_CORRECTION_SUPPORT) != 0,
            fp64: device.number(CL_DEVICE_DOUBLE_FP_CONFIG) != 0 || has("cl_khr_fp64"),
            fp16: has("cl_khr_fp16"),
            exact_division: device.number(CL_DEVICE_SINGLE_FP_CONFIG)
                & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
                != 0,
            int64_atomics: has("cl_khr_int64_base_atomics") && has("cl_khr_int64_extended_atomics"),
            pci: device.pci(),
            uuid: device.uuid(),
        };
        if device.is_cuda() {
            facts.correct(device);
        }
        facts
    }

    /// Replaces values of OpenCL's queries by those of CUDA's own driver.
    fn correct(&mut self, device: &PoolDevice) {
        self.threads_max = size(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        self.block_max = [
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        ]
        .map(|attribute| size(device, attribute));
        self.clock_khz = size(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        self.shared_bytes = size(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        self.pci = [
            CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ]
        .map(|attribute| size(device, attribute));
    }
}

/// Sizes of a device's memory, in bytes.
pub(super) struct MemorySizes {
    pub(super) total: u64,
    /// The largest buffer that the device supports.
    pub(super) largest_buffer: u64,
}

impl MemorySizes {
    pub(super) fn of(device: &PoolDevice) -> Self {
        Self {
            total: device.number(CL_DEVICE_GLOBAL_MEM_SIZE),
            largest_buffer: device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        }
    }
}
