//! Memory nodes of graphs.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::*;

use super::graph::add;
use crate::core::context::Context;
use crate::core::graph::memory::{self, GraphMemory};
use crate::core::graph::node::Node;
use crate::core::graph::work::Work;
use crate::core::platform;
use crate::edge::{CuResult, Object as _, cu_entry, load, require, store};

/// Values of `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: c_uint = 1;
const DEVICE: c_uint = 1;

/// Allocates the memory that the program describes, and stores its address in the description.
///
/// # Safety
/// `params` is null, or readable and writable.
pub(super) unsafe fn allocation(params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CuResult<Work> {
    // SAFETY: the caller promises that `params` is null or readable.
    let mut given = unsafe { load(params.cast_const()) }?;
    let pool = &given.poolProps;
    require(pool.allocType == PINNED && pool.locationType == DEVICE, CUDA_ERROR_INVALID_VALUE)?;
    // Memory that other processes can use is not served.
    require(pool.handleTypes == 0, CUDA_ERROR_NOT_SUPPORTED)?;
    let device = platform::device(pool.locationId)?;
    // SAFETY: the caller promises that the list is null or has this number of elements.
    let accesses = unsafe { crate::edge::array(given.accessDescs, given.accessDescCount) }?;
    // Access for other devices is not served.
    for [kind, place, access] in accesses {
        let is_own = *kind == DEVICE && CUdevice::try_from(*place) == Ok(device.number());
        require(is_own || *access == 0, CUDA_ERROR_NOT_SUPPORTED)?;
    }
    let context = Context::current()?;
    let memory = GraphMemory::new(&context, device, given.bytesize as u64)?;
    given.dptr = memory.address();
    // SAFETY: the caller promises that `params` is null or writable.
    unsafe { store(params, given) };
    Ok(Work::Allocate(memory))
}

/// Makes the work of a node that frees memory of a graph.
pub(super) fn release(address: CUdeviceptr) -> CuResult<Work> {
    require(memory::is_address(address), CUDA_ERROR_INVALID_VALUE)?;
    Ok(Work::Free(address))
}

cu_entry! {
    fn cuGraphAddMemAllocNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        // SAFETY: the program promises what `add` and `allocation` demand.
        unsafe { add(result, graph, dependencies, count, || allocation(params)) }
    }
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        require(!params.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Allocate(memory) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let pool = CUmemPoolProps {
            allocType: PINNED,
            handleTypes: 0,
            locationType: DEVICE,
            locationId: memory.device(),
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let known = CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: pool,
            accessDescs: std::ptr::null(),
            accessDescCount: 0,
            bytesize: usize::try_from(memory.size).unwrap_or(usize::MAX),
            dptr: memory.address(),
        };
        // SAFETY: the program promises that `params` is null or writable.
        unsafe { store(params, known) };
        Ok(())
    }
    fn cuGraphAddMemFreeNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        address: CUdeviceptr,
    ) {
        // SAFETY: the program promises what `add` demands.
        unsafe { add(result, graph, dependencies, count, || release(address)) }
    }
    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) {
        require(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Free(known) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        // SAFETY: the program promises that `address` is null or writable.
        unsafe { store(address, known) };
        Ok(())
    }
    /// Does nothing, because the memory is freed with its graph.
    fn cuDeviceGraphMemTrim(device: CUdevice) {
        platform::device(device).map(drop)
    }
    /// The high watermarks are the current values.
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (used, reserved) = memory::bytes(platform::device(device)?);
        let known = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => used,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => reserved,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value.cast::<u64>(), known) };
        Ok(())
    }
    /// "High watermark can only be reset to zero." The function has no effect, because the high
    /// watermark is always the current value.
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) {
        platform::device(device)?;
        // SAFETY: the program promises that `value` is null or readable.
        let wanted = unsafe { load(value.cast_const().cast::<u64>()) }?;
        let is_high = [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH].contains(&attribute);
        require(is_high && wanted == 0, CUDA_ERROR_INVALID_VALUE)
    }
}
