//! Attributes of pointers, answered in the client.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::arena::Allocation;
use crate::core::context::Context;
use crate::core::host::RegisteredRange;
use crate::core::{heap, host, platform};
use crate::edge::{CuResult, array, cu_entry, require, store};

/// What an address points to.
enum KnownAddress {
    Device {
        ordinal: c_int,
        start: u64,
        live: Allocation,
        is_managed: bool,
    },
    Host {
        start: usize,
        size: usize,
        /// Device address of `start`, if kernels see the memory.
        mapped: Option<u64>,
    },
    /// Address in a symmetric heap. Its memory depends on the device that uses it.
    Heap,
    Nothing,
}

fn look(address: u64) -> KnownAddress {
    // Pinned memory that kernels use may lie among the addresses of a device.
    let range = usize::try_from(address).ok().and_then(host::find);
    let is_managed = match range {
        Some(range) if !range.is_managed => {
            let RegisteredRange { start, size, mapped, .. } = range;
            return KnownAddress::Host { start, size, mapped };
        }
        range => range.is_some(),
    };
    if let Some(device) = platform::device_of(address) {
        let ordinal = device.number();
        return match device.space.find(address) {
            Some((start, live)) => KnownAddress::Device { ordinal, start, live, is_managed },
            None => KnownAddress::Nothing,
        };
    }
    if heap::is_address(address) { KnownAddress::Heap } else { KnownAddress::Nothing }
}

/// Stores the answer to a query. "CUDA_ERROR_INVALID_VALUE if ptr is not a valid pointer, or the
/// query is not valid for it".
///
/// # Safety
/// `to` has room for the value of `attribute`.
unsafe fn answer(
    to: *mut c_void,
    attribute: c_uint,
    address: u64,
    known: &KnownAddress,
) -> CuResult {
    macro_rules! give {
        ($value:expr) => {{
            // SAFETY: the caller promises room for the value of `attribute`.
            unsafe { store(to.cast(), $value) };
            Ok(())
        }};
    }
    match (attribute, known) {
        (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, KnownAddress::Device { .. } | KnownAddress::Heap) => {
            give!(CU_MEMORYTYPE_DEVICE)
        }
        (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, KnownAddress::Host { .. }) => give!(CU_MEMORYTYPE_HOST),
        (CU_POINTER_ATTRIBUTE_CONTEXT, KnownAddress::Device { live, .. }) => give!(live.owner),
        (CU_POINTER_ATTRIBUTE_DEVICE_POINTER, KnownAddress::Device { .. })
        | (CU_POINTER_ATTRIBUTE_HOST_POINTER, KnownAddress::Host { .. }) => give!(address),
        (
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            KnownAddress::Host { start, mapped: Some(mapped), .. },
        ) => give!(mapped + (address - *start as u64)),
        (CU_POINTER_ATTRIBUTE_HOST_POINTER, KnownAddress::Device { .. }) => {
            give!(host::host_address(address).ok_or(CUDA_ERROR_INVALID_VALUE)?)
        }
        (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, KnownAddress::Device { ordinal, .. }) => {
            give!(*ordinal)
        }
        (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, KnownAddress::Host { .. }) => {
            give!(Context::peek().map_or(0, |context| context.device.number()))
        }
        (CU_POINTER_ATTRIBUTE_BUFFER_ID, KnownAddress::Device { live, .. }) => give!(live.serial),
        (
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
            KnownAddress::Device { start, .. },
        ) => {
            give!(*start)
        }
        (
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
            KnownAddress::Device { live, .. },
        ) => {
            give!(live.size)
        }
        (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, KnownAddress::Host { start, .. }) => give!(*start),
        (CU_POINTER_ATTRIBUTE_RANGE_SIZE, KnownAddress::Host { size, .. }) => give!(*size),
        (
            CU_POINTER_ATTRIBUTE_MAPPED,
            KnownAddress::Device { .. } | KnownAddress::Host { mapped: Some(_), .. },
        ) => give!(1u8),
        (CU_POINTER_ATTRIBUTE_MAPPED, _) => give!(0u8),
        (CU_POINTER_ATTRIBUTE_IS_MANAGED, KnownAddress::Device { is_managed: true, .. }) => {
            give!(1u8)
        }
        (
            CU_POINTER_ATTRIBUTE_IS_MANAGED
            | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
            KnownAddress::Device { .. } | KnownAddress::Host { .. },
        ) => give!(0u8),
        (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, KnownAddress::Device { .. }) => give!(1u8),
        (CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, KnownAddress::Device { .. }) => give!(0u64),
        (CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, KnownAddress::Device { .. }) => give!(3u32),
        (CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, KnownAddress::Device { .. }) => give!(0u64),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cu_entry! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: CUdeviceptr) {
        platform::devices()?;
        require(!data.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises room for the value of `attribute` at `data`.
        unsafe { answer(data, attribute, address, &look(address)) }
    }
    /// "... will not return an error when the attributes are invalid": their values are 0.
    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut c_uint,
        data: *mut *mut c_void,
        address: CUdeviceptr,
    ) {
        platform::devices()?;
        require(count > 0, CUDA_ERROR_INVALID_VALUE)?;
        let known = look(address);
        // SAFETY: the program promises that `attributes` and `data` are null or have `count`
        // elements.
        let (names, places) = unsafe { (array(attributes, count as usize)?, array(data, count as usize)?) };
        for (name, place) in names.iter().zip(places).filter(|(_, place)| !place.is_null()) {
            // SAFETY: the program promises room for the value of each attribute.
            if unsafe { answer(*place, *name, address, &known) }.is_ok() {
                continue;
            }
            let size = match *name {
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => 4,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                    // SAFETY: the program promises room for a number. -2 is `CU_DEVICE_INVALID`.
                    unsafe { store(place.cast(), -2i32) };
                    continue;
                }
                CU_POINTER_ATTRIBUTE_IS_MANAGED
                | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                | CU_POINTER_ATTRIBUTE_MAPPED
                | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
                | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
                | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => 1,
                CU_POINTER_ATTRIBUTE_P2P_TOKENS => 16,
                _ => 8,
            };
            // SAFETY: the program promises room for the value of the attribute, which has `size`
            // bytes.
            unsafe { place.cast::<u8>().write_bytes(0, size) };
        }
        Ok(())
    }
    /// Accepts only `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, which has no effect: all copies behave so.
    fn cuPointerSetAttribute(value: *const c_void, attribute: c_uint, address: CUdeviceptr) {
        platform::devices()?;
        let known = matches!(look(address), KnownAddress::Device { .. });
        let fits = attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && known && !value.is_null();
        require(fits, CUDA_ERROR_INVALID_VALUE)
    }
    /// Stores the address in this process of `size` bytes of device memory. The address is valid
    /// until the program frees the memory. CUDA has no such function: `libpenstock_mpi_*.so` uses
    /// it. "CUDA_ERROR_NOT_SUPPORTED" if the device does not work on memory that this process sees.
    fn penstockHostAddress(host: *mut *mut c_void, address: CUdeviceptr, size: usize) {
        platform::devices()?;
        require(!host.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let device = platform::device_of(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let place = device.space.locate(address, size as u64)?;
        let shared = place.memory.lendable_pointer().ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        let offset = usize::try_from(place.offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `host` is null or writable.
        unsafe { store(host, shared.as_ptr().wrapping_add(offset).cast()) };
        Ok(())
    }
}
