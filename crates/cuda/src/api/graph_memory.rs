//! Memory that graphs allocate.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::*;

use super::graph::add;
use crate::core::context::Context;
use crate::core::graph::memory::{self, Memory};
use crate::core::graph::node::Node;
use crate::core::graph::work::Work;
use crate::core::platform;
use crate::edge::{CuResult, Object as _, cu_entry, load, require, store};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: c_uint = 1;
const DEVICE: c_uint = 1;

/// Memory as the program describes it, which is told the address.
///
/// # Safety
/// `params` is `NULL` or leads to a description.
pub(super) unsafe fn allocation(params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CuResult<Work> {
    // SAFETY: the caller's promise.
    let mut given = unsafe { load(params.cast_const()) }?;
    let pool = &given.poolProps;
    require(pool.allocType == PINNED && pool.locationType == DEVICE, CUDA_ERROR_INVALID_VALUE)?;
    // Memory for other processes.
    require(pool.handleTypes == 0, CUDA_ERROR_NOT_SUPPORTED)?;
    let device = platform::device(pool.locationId)?;
    // SAFETY: so many: kind of place, place, access of each. Other devices never have access.
    for [kind, place, access] in
        unsafe { crate::edge::array(given.accessDescs, given.accessDescCount) }?
    {
        let is_own = *kind == DEVICE && CUdevice::try_from(*place) == Ok(device.number());
        require(is_own || *access == 0, CUDA_ERROR_NOT_SUPPORTED)?;
    }
    let context = Context::current()?;
    let memory = Memory::new(&context, device, given.bytesize as u64)?;
    given.dptr = memory.address();
    // SAFETY: the caller's promise.
    unsafe { store(params, given) };
    Ok(Work::Allocate(memory))
}

/// Memory of a graph that a node frees.
pub(super) fn release(address: CUdeviceptr) -> CuResult<Work> {
    require(memory::is_address(address), CUDA_ERROR_INVALID_VALUE)?;
    Ok(Work::Free(address))
}

cu_entry! {
    /// `cuGraphAddMemAllocNode`.
    fn cuGraphAddMemAllocNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        // SAFETY: the program's description.
        unsafe { add(result, graph, (dependencies, count), || allocation(params)) }
    }
    /// `cuGraphMemAllocNodeGetParams`.
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
        // SAFETY: a place for the description.
        unsafe { store(params, known) };
        Ok(())
    }
    /// `cuGraphAddMemFreeNode`.
    fn cuGraphAddMemFreeNode(
        result: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        address: CUdeviceptr,
    ) {
        // SAFETY: the program's list.
        unsafe { add(result, graph, (dependencies, count), || release(address)) }
    }
    /// `cuGraphMemFreeNodeGetParams`.
    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) {
        require(!address.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let Work::Free(known) = Node::borrow(node)?.work() else { return Err(CUDA_ERROR_INVALID_VALUE) };
        // SAFETY: a place for the address.
        unsafe { store(address, known) };
        Ok(())
    }
    /// `cuDeviceGraphMemTrim`: memory goes with its graph, so there is nothing to give back.
    fn cuDeviceGraphMemTrim(device: CUdevice) {
        platform::device(device).map(drop)
    }
    /// `cuDeviceGetGraphMemAttribute`. The highest numbers are those of now.
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let (used, reserved) = memory::bytes(platform::device(device)?);
        let known = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => used,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => reserved,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: a place for the number.
        unsafe { store(value.cast::<u64>(), known) };
        Ok(())
    }
    /// `cuDeviceSetGraphMemAttribute`: "High watermark can only be reset to zero." It is that of now in any case.
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) {
        platform::device(device)?;
        // SAFETY: a number of the program.
        let wanted = unsafe { load(value.cast_const().cast::<u64>()) }?;
        let is_high = [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH].contains(&attribute);
        require(is_high && wanted == 0, CUDA_ERROR_INVALID_VALUE)
    }
}
