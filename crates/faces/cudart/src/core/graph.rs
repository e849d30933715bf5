//! Conversion between the runtime's and the driver's descriptions of graph nodes.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUgraphNode, CUgraphNodeParams,
};
use penstock_cuda_sys::runtime::{Extent, Memcpy3DParms, PitchedPtr, Pos, copy_kind};

use super::array::element_bytes;
use super::context::Current;
use super::copy::{Side, describe_boxes, describe_linear, way};
use super::registry;
use crate::edge::{RtError, RtResult};

/// Converts `cudaKernelNodeParams` to the driver's form. Only the handle of the kernel differs.
///
/// # Safety
/// `params` is null or points to a description.
pub(crate) unsafe fn kernel(
    current: Current,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> RtResult<CUDA_KERNEL_NODE_PARAMS_v1> {
    if params.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let mut params = unsafe { params.read_unaligned() };
    params.func = registry::function(current, params.func.cast_const().cast())?;
    Ok(params)
}

/// Returns the runtime's description of a kernel node.
///
/// # Errors
/// The driver returns an error.
pub(crate) fn kernel_of(
    current: Current,
    node: CUgraphNode,
) -> RtResult<CUDA_KERNEL_NODE_PARAMS_v1> {
    // SAFETY: all zeros is a valid value of this structure.
    let mut params: CUDA_KERNEL_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { current.driver.cuGraphKernelNodeGetParams(node, &raw mut params) }?;
    params.func = registry::host_of(current, params.func).cast_mut().cast();
    Ok(params)
}

/// Converts the description of a copy to the driver's form.
///
/// # Safety
/// `params` is null or points to a description.
pub(crate) unsafe fn copy(
    current: Current,
    params: *const Memcpy3DParms,
) -> RtResult<CUDA_MEMCPY3D> {
    if params.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    describe_boxes(current, &unsafe { params.read_unaligned() })
}

/// Describes a copy of consecutive bytes in the driver's form.
///
/// # Errors
/// An address is null, or `kind` is not a valid direction for the addresses.
pub(crate) fn linear(
    current: Current,
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    kind: c_int,
) -> RtResult<CUDA_MEMCPY3D> {
    if destination.is_null() || source.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    Ok(describe_linear(destination, source, bytes, way(current, kind, destination, source)?))
}

/// Converts the driver's description of a copy to the runtime's form.
///
/// # Errors
/// An array no longer exists.
pub(crate) fn copy_back(current: Current, copy: &CUDA_MEMCPY3D) -> RtResult<Memcpy3DParms> {
    let element = |kind: c_uint, array| match kind {
        CU_MEMORYTYPE_ARRAY => element_bytes(current, array).map(Some),
        _ => Ok(None),
    };
    let (from, to) =
        (element(copy.srcMemoryType, copy.srcArray)?, element(copy.dstMemoryType, copy.dstArray)?);
    let side = |kind: c_uint| if kind == CU_MEMORYTYPE_HOST { Side::Host } else { Side::Device };
    let memory = |kind: c_uint, host: *mut c_void, device: u64, pitch: usize, rows: usize| {
        let address = usize::try_from(device).unwrap_or(0);
        let ptr = match kind {
            CU_MEMORYTYPE_ARRAY => std::ptr::null_mut(),
            CU_MEMORYTYPE_HOST => host,
            _ => std::ptr::with_exposed_provenance_mut(address),
        };
        PitchedPtr { ptr, pitch, xsize: copy.WidthInBytes, ysize: rows }
    };
    let array = |kind: c_uint, array: *mut c_void| {
        if kind == CU_MEMORYTYPE_ARRAY { array } else { std::ptr::null_mut() }
    };
    let kind = match (side(copy.srcMemoryType), side(copy.dstMemoryType)) {
        (Side::Host, Side::Host) => copy_kind::HOST_TO_HOST,
        (Side::Host, Side::Device) => copy_kind::HOST_TO_DEVICE,
        (Side::Device, Side::Host) => copy_kind::DEVICE_TO_HOST,
        (Side::Device, Side::Device) => copy_kind::DEVICE_TO_DEVICE,
    };
    let bytes = from.or(to).unwrap_or(1).max(1);
    Ok(Memcpy3DParms {
        src_array: array(copy.srcMemoryType, copy.srcArray.cast()),
        src_pos: Pos { x: copy.srcXInBytes / from.unwrap_or(1).max(1), y: copy.srcY, z: copy.srcZ },
        src_ptr: memory(
            copy.srcMemoryType,
            copy.srcHost.cast_mut(),
            copy.srcDevice,
            copy.srcPitch,
            copy.srcHeight,
        ),
        dst_array: array(copy.dstMemoryType, copy.dstArray.cast()),
        dst_pos: Pos { x: copy.dstXInBytes / to.unwrap_or(1).max(1), y: copy.dstY, z: copy.dstZ },
        dst_ptr: memory(
            copy.dstMemoryType,
            copy.dstHost,
            copy.dstDevice,
            copy.dstPitch,
            copy.dstHeight,
        ),
        extent: Extent { width: copy.WidthInBytes / bytes, height: copy.Height, depth: copy.Depth },
        kind,
    })
}

/// Layout of C's `cudaMemcpyNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemcpyNodeParams {
    flags: c_int,
    reserved: [c_int; 3],
    copy: Memcpy3DParms,
}

/// Converts `cudaGraphNodeParams` to the driver's form. Only kernels, copies and fills differ.
///
/// # Safety
/// `params` is null or points to a description.
pub(crate) unsafe fn any(
    current: Current,
    params: *const CUgraphNodeParams,
) -> RtResult<CUgraphNodeParams> {
    if params.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let mut whole = unsafe { params.read_unaligned() };
    let given = whole.params;
    let place = whole.params.as_mut_ptr();
    match whole.kind {
        CU_GRAPH_NODE_TYPE_KERNEL => {
            // SAFETY: a description of this kind holds a kernel's, with which the driver's begins.
            let first = unsafe { kernel(current, given.as_ptr().cast()) }?;
            let wide = CUDA_KERNEL_NODE_PARAMS {
                first,
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            };
            // SAFETY: `params` has room for the largest description.
            unsafe { place.cast::<CUDA_KERNEL_NODE_PARAMS>().write(wide) };
        }
        CU_GRAPH_NODE_TYPE_MEMCPY => {
            const { assert!(size_of::<MemcpyNodeParams>() <= size_of::<[u64; 29]>()) };
            // SAFETY: a description of this kind holds a copy.
            let copied = unsafe { given.as_ptr().cast::<MemcpyNodeParams>().read() };
            let described = CUDA_MEMCPY_NODE_PARAMS {
                flags: copied.flags,
                reserved: 0,
                copyCtx: current.context,
                copyParams: describe_boxes(current, &copied.copy)?,
            };
            // SAFETY: `params` has room for the largest description.
            unsafe { place.cast::<CUDA_MEMCPY_NODE_PARAMS>().write(described) };
        }
        // The driver's description is followed by the context.
        CU_GRAPH_NODE_TYPE_MEMSET => whole.params[5] = current.context.addr() as u64,
        _ => {}
    }
    Ok(whole)
}
