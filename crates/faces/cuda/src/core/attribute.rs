//! Attributes of devices, as they hold for the device that is used.

use penstock_cuda_sys::driver::*;

use super::capability::{CAPABILITY, SHARED_BYTES, SHARED_BYTES_OPT_IN, WARP};
use super::device::Device;
use super::{managed, native};
use crate::edge::CuResult;

/// Constant memory of a module, in bytes.
const CONSTANT_BYTES: i32 = 64 << 10;

/// Registers of a multiprocessor. They limit nothing here, but programs divide by this number.
const REGISTERS: i32 = 64 << 10;

/// Returns the shared memory in bytes that a block may use without and with opting in.
pub(crate) fn shared_bytes(device: &Device) -> (u32, u32) {
    if device.is_native {
        return native::attribute::shared_bytes(&device.pool);
    }
    let there = device.facts.shared_bytes;
    (there.min(SHARED_BYTES), there.min(SHARED_BYTES_OPT_IN))
}

/// Returns the value of an attribute.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the number is not that of an attribute.
pub(crate) fn of_device(device: &Device, attribute: u32) -> CuResult<i32> {
    if attribute == 0 || attribute >= DEVICE_ATTRIBUTES {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(value) =
        device.is_native.then(|| native::attribute::of_gpu(&device.pool, attribute)).flatten()
    {
        return Ok(value);
    }
    let facts = &device.facts;
    let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let wide = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => int(facts.threads_max),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => int(facts.block_max[0]),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => int(facts.block_max[1]),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => int(facts.block_max[2]),
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X | CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => int(shared_bytes(device).0),
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        | CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => int(shared_bytes(device).1),
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => CONSTANT_BYTES,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => WARP,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => REGISTERS,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => int(facts.clock_khz),
        // Allocations have this alignment.
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => 256,
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => int(facts.compute_units),
        CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => device.can_map_host_memory().into(),
        // "All host memory allocated using cuMemAllocHost() and cuMemHostAlloc() will automatically
        // be immediately accessible from all contexts on all devices which support unified
        // addressing." Kernels and the host may use managed memory at the same time: both work on
        // the same pages, through coherent caches.
        CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => managed::is_on(device).into(),
        CU_DEVICE_ATTRIBUTE_ECC_ENABLED => facts.corrects_errors.into(),
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => int(facts.pci[0]),
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => int(facts.pci[1]),
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => int(facts.pci[2]),
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => wide(facts.cache_bytes),
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => CAPABILITY.0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => CAPABILITY.1,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => 16,
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
        | CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT => 1,
        CU_DEVICE_ATTRIBUTE_NUMA_ID | CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
        _ => of_textures(attribute),
    })
}

/// Returns the limits of textures, and 0 for everything else. Textures are sampled in software, so
/// the limits are those that programs rely on. Mipmaps are not served, so their sizes are 0.
fn of_textures(attribute: u32) -> i32 {
    match attribute {
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH => 131_072,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT => 65_536,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH => 16_384,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1 << 28,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH => 131_072,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT => 65_000,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => 2_097_120,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH => 32_768,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => 2_048,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => 2_046,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => 131_072,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => 65_536,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => 16_384,
        _ => 0,
    }
}
