//! `cudaDeviceProp` of versions 12 and 13: the fields in order, each with its device attributes.

use core::ffi::{c_int, c_uint};

use crate::driver::*;

/// A field that is made from attributes.
trait FromAttributes {
    fn from_attributes(values: &[c_int]) -> Self;
}

fn first(values: &[c_int]) -> c_int {
    values.first().copied().unwrap_or_default()
}

impl FromAttributes for c_int {
    fn from_attributes(values: &[c_int]) -> Self {
        first(values)
    }
}

impl FromAttributes for c_uint {
    fn from_attributes(values: &[c_int]) -> Self {
        first(values).cast_unsigned()
    }
}

impl FromAttributes for usize {
    fn from_attributes(values: &[c_int]) -> Self {
        Self::try_from(first(values)).unwrap_or_default()
    }
}

impl<const N: usize> FromAttributes for [c_int; N] {
    fn from_attributes(values: &[c_int]) -> Self {
        core::array::from_fn(|index| values.get(index).copied().unwrap_or_default())
    }
}

/// Bytes that no attribute describes.
impl<const N: usize> FromAttributes for [u8; N] {
    fn from_attributes(_: &[c_int]) -> Self {
        [0; N]
    }
}

macro_rules! properties {
    ($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty = [$($attribute:ident),* $(,)?];)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_snake_case, reason = "fields of a C structure, documented there")]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $name {
            /// Fills the fields from attributes. The others (name, UUID and memory size) are zero.
            pub fn from_attributes(mut attribute: impl FnMut(c_uint) -> c_int) -> Self {
                Self { $($field: FromAttributes::from_attributes(&[$(attribute($attribute)),*]),)* }
            }

            /// Returns the name and the offset of every field, in order.
            #[must_use]
            pub fn offsets() -> Vec<(&'static str, usize)> {
                vec![$((stringify!($field), core::mem::offset_of!($name, $field)),)*]
            }
        }
    };
}

/// Makes both structures. They have the fields of `both` in common, and the fields of `twelve` stand
/// between them in version 12 only. Those of `thirteen` are at the end of version 13.
macro_rules! both_versions {
    (
        $(
            both { $($field:ident: $type:ty = [$($attribute:ident),* $(,)?];)* }
            twelve { $($old:ident: $old_type:ty = [$($old_attribute:ident),* $(,)?];)* }
        )*
        thirteen { $($new:ident: $new_type:ty = [$($new_attribute:ident),* $(,)?];)* }
    ) => {
        properties! {
            /// The properties of version 12, which `cudaGetDeviceProperties_v2` fills in.
            struct DeviceProperties12 {
                $(
                    $($field: $type = [$($attribute),*];)*
                    $($old: $old_type = [$($old_attribute),*];)*
                )*
                reserved: [c_int; 63] = [];
            }
        }
        properties! {
            /// The properties of version 13.
            struct DeviceProperties13 {
                $($($field: $type = [$($attribute),*];)*)*
                $($new: $new_type = [$($new_attribute),*];)*
                reserved: [c_int; 56] = [];
            }
        }
    };
}

both_versions! {
    both {
        name: [u8; 256] = [];
        uuid: [u8; 16] = [];
        luid: [u8; 8] = [];
        luidDeviceNodeMask: c_uint = [];
        totalGlobalMem: usize = [];
        sharedMemPerBlock: usize = [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];
        regsPerBlock: c_int = [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
        warpSize: c_int = [CU_DEVICE_ATTRIBUTE_WARP_SIZE];
        memPitch: usize = [CU_DEVICE_ATTRIBUTE_MAX_PITCH];
        maxThreadsPerBlock: c_int = [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
        maxThreadsDim: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        ];
        maxGridSize: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
        ];
    }
    twelve {
        clockRate: c_int = [CU_DEVICE_ATTRIBUTE_CLOCK_RATE];
    }
    both {
        totalConstMem: usize = [CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY];
        major: c_int = [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
        minor: c_int = [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
        textureAlignment: usize = [CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
        texturePitchAlignment: usize = [CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT];
    }
    twelve {
        deviceOverlap: c_int = [CU_DEVICE_ATTRIBUTE_GPU_OVERLAP];
    }
    both {
        multiProcessorCount: c_int = [CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    }
    twelve {
        kernelExecTimeoutEnabled: c_int = [CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT];
    }
    both {
        integrated: c_int = [CU_DEVICE_ATTRIBUTE_INTEGRATED];
        canMapHostMemory: c_int = [CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY];
    }
    twelve {
        computeMode: c_int = [CU_DEVICE_ATTRIBUTE_COMPUTE_MODE];
    }
    both {
        maxTexture1D: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH];
        maxTexture1DMipmap: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH];
    }
    twelve {
        maxTexture1DLinear: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
    }
    both {
        maxTexture2D: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
        ];
        maxTexture2DMipmap: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
        ];
        maxTexture2DLinear: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH,
        ];
        maxTexture2DGather: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT,
        ];
        maxTexture3D: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
        ];
        maxTexture3DAlt: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
        ];
        maxTextureCubemap: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH];
        maxTexture1DLayered: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
        ];
        maxTexture2DLayered: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
        ];
        maxTextureCubemapLayered: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
        ];
        maxSurface1D: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH];
        maxSurface2D: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT,
        ];
        maxSurface3D: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH,
        ];
        maxSurface1DLayered: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS,
        ];
        maxSurface2DLayered: [c_int; 3] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS,
        ];
        maxSurfaceCubemap: c_int = [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH];
        maxSurfaceCubemapLayered: [c_int; 2] = [
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS,
        ];
        surfaceAlignment: usize = [CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT];
        concurrentKernels: c_int = [CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS];
        ECCEnabled: c_int = [CU_DEVICE_ATTRIBUTE_ECC_ENABLED];
        pciBusID: c_int = [CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
        pciDeviceID: c_int = [CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
        pciDomainID: c_int = [CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
        tccDriver: c_int = [CU_DEVICE_ATTRIBUTE_TCC_DRIVER];
        asyncEngineCount: c_int = [CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT];
        unifiedAddressing: c_int = [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING];
    }
    twelve {
        memoryClockRate: c_int = [CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE];
    }
    both {
        memoryBusWidth: c_int = [CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH];
        l2CacheSize: c_int = [CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE];
        persistingL2CacheMaxSize: c_int = [CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE];
        maxThreadsPerMultiProcessor: c_int = [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
        streamPrioritiesSupported: c_int = [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED];
        globalL1CacheSupported: c_int = [CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED];
        localL1CacheSupported: c_int = [CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED];
        sharedMemPerMultiprocessor: usize = [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR];
        regsPerMultiprocessor: c_int = [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR];
        managedMemory: c_int = [CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY];
        isMultiGpuBoard: c_int = [CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD];
        multiGpuBoardGroupID: c_int = [CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID];
        hostNativeAtomicSupported: c_int = [CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED];
    }
    twelve {
        singleToDoublePrecisionPerfRatio: c_int = [CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO];
    }
    both {
        pageableMemoryAccess: c_int = [CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS];
        concurrentManagedAccess: c_int = [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS];
        computePreemptionSupported: c_int = [CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED];
        canUseHostPointerForRegisteredMem: c_int = [
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        ];
        cooperativeLaunch: c_int = [CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH];
    }
    twelve {
        cooperativeMultiDeviceLaunch: c_int = [CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH];
    }
    both {
        sharedMemPerBlockOptin: usize = [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
        pageableMemoryAccessUsesHostPageTables: c_int = [
            CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        ];
        directManagedMemAccessFromHost: c_int = [CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST];
        maxBlocksPerMultiProcessor: c_int = [CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR];
        accessPolicyMaxWindowSize: c_int = [CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE];
        reservedSharedMemPerBlock: usize = [CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK];
        hostRegisterSupported: c_int = [CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED];
        sparseCudaArraySupported: c_int = [CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED];
        hostRegisterReadOnlySupported: c_int = [CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED];
        timelineSemaphoreInteropSupported: c_int = [CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED];
        memoryPoolsSupported: c_int = [CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED];
        gpuDirectRDMASupported: c_int = [CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED];
        gpuDirectRDMAFlushWritesOptions: c_uint = [CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS];
        gpuDirectRDMAWritesOrdering: c_int = [CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING];
        memoryPoolSupportedHandleTypes: c_uint = [CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES];
        deferredMappingCudaArraySupported: c_int = [
            CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
        ];
        ipcEventSupported: c_int = [CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED];
        clusterLaunch: c_int = [CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH];
        unifiedFunctionPointers: c_int = [CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS];
    }
    twelve {}
    thirteen {
        deviceNumaConfig: c_int = [CU_DEVICE_ATTRIBUTE_NUMA_CONFIG];
        deviceNumaId: c_int = [CU_DEVICE_ATTRIBUTE_NUMA_ID];
        mpsEnabled: c_int = [CU_DEVICE_ATTRIBUTE_MPS_ENABLED];
        hostNumaId: c_int = [CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID];
        gpuPciDeviceID: c_uint = [CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID];
        gpuPciSubsystemID: c_uint = [CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID];
        hostNumaMultinodeIpcSupported: c_int = [CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED];
    }
}

/// Size of the structure that programs for version 11 pass to version 12's plain
/// `cudaGetDeviceProperties`. Its last field is `reservedSharedMemPerBlock`.
pub const DEVICE_PROPERTIES_11_BYTES: usize =
    core::mem::offset_of!(DeviceProperties12, reservedSharedMemPerBlock) + size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_attributes_of_their_names() {
        let made = DeviceProperties13::from_attributes(c_uint::cast_signed);
        assert_eq!(made.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.cast_signed());
        assert_eq!(made.maxThreadsDim, [2, 3, 4]);
        assert_eq!(made.sharedMemPerBlock, 8);
        assert_eq!(made.name, [0; 256]);
        assert_eq!(made.reserved, [0; 56]);
    }

    #[test]
    fn the_sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<DeviceProperties12>(), 1032);
        assert_eq!(size_of::<DeviceProperties13>(), 1008);
        assert_eq!(DEVICE_PROPERTIES_11_BYTES, 728);
    }
}
