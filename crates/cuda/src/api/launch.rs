//! Launches.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::launch::{Fixed, Params, Shape};
use crate::core::library;
use crate::core::log;
use crate::core::stream::{Default, Stream};
use crate::edge::{Bytes, CuResult, array, cu_stream_entry, load, require};

/// What a program left in `kernelParams` and `extra`.
///
/// # Safety
/// Both are as the interface says.
#[inline]
pub(super) unsafe fn params(each: *mut *mut c_void, extra: *mut *mut c_void) -> CuResult<Params> {
    if !each.is_null() {
        // "CUDA_ERROR_INVALID_VALUE will be returned if kernel parameters are specified with both kernelParams and extra".
        require(extra.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        return Ok(Params::Each(each.cast_const().cast()));
    }
    if extra.is_null() {
        return Ok(Params::None);
    }
    /// The list has two names; more is a list without its end.
    const NAMES_MAX: usize = 4;
    let (mut buffer, mut size) = (None, None);
    for index in 0..NAMES_MAX {
        // SAFETY: the list goes on until its end.
        let name = unsafe { load(extra.add(2 * index)) }?.addr();
        if name == CU_LAUNCH_PARAM_END {
            break;
        }
        // SAFETY: a name has a value.
        let value: *mut c_void = unsafe { load(extra.add(2 * index + 1)) }?;
        match name {
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(value),
            // SAFETY: the address of a number.
            CU_LAUNCH_PARAM_BUFFER_SIZE => {
                size = Some(unsafe { load(value.cast_const().cast::<usize>()) }?)
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    let (Some(buffer), Some(size)) = (buffer, size) else { return Err(CUDA_ERROR_INVALID_VALUE) };
    // SAFETY: a buffer of that size.
    unsafe { Bytes::new(buffer, size) }.map(Params::Packed)
}

/// # Safety
/// The parameters are the function's.
#[inline]
pub(super) unsafe fn launch(
    function: CUfunction,
    shape: &Shape,
    (stream, default): (CUstream, Default),
    (each, extra): (*mut *mut c_void, *mut *mut c_void),
) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let function = library::function(function)?;
    // "CUDA_ERROR_INVALID_HANDLE ... if the function is of another context than the stream".
    require(function.loaded.is_in(&context), CUDA_ERROR_INVALID_HANDLE)?;
    // SAFETY: the caller's promise.
    let params = unsafe { params(each, extra) }?;
    // SAFETY: the caller's promise.
    let work = || unsafe { Fixed::new(function.clone(), *shape, &params) }.map(Work::Kernel);
    if capture::takes(&context, &stream, work)? {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { function.launch(&context, &stream, shape, &params) }
}

/// What an attribute asks of a launch of this grid.
pub(super) fn check_attribute(id: c_uint, value: &[u32; 16], grid: [u32; 3]) -> CuResult {
    match id {
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE if value[0] != 0 => check_cooperative(grid),
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if value[..3] != [1, 1, 1] => {
            Err(CUDA_ERROR_INVALID_CLUSTER_SIZE)
        }
        // The others are wishes about caches and schedules.
        _ => Ok(()),
    }
}

/// A grid whose blocks wait for each other runs only where all of them run at once; of that only one block is sure.
fn check_cooperative(grid: [u32; 3]) -> CuResult {
    if grid == [1, 1, 1] {
        return Ok(());
    }
    log::once(
        "cooperative",
        format_args!("cooperative launches of more than one block are not served"),
    );
    Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
}

cu_stream_entry! {
    /// `cuLaunchKernel`.
    fn cuLaunchKernel / cuLaunchKernel_ptsz |default| (
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: the program's parameters.
        unsafe { launch(function, &Shape { grid, block, dynamic: shared }, (stream, default), (params, extra)) }
    }
    /// `cuLaunchKernelEx`.
    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz |default| (
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        // SAFETY: the program's description.
        let config = unsafe { load(config) }?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        // SAFETY: so many attributes.
        for attribute in unsafe { array(config.attrs, config.numAttrs as usize) }? {
            check_attribute(attribute.id, &attribute.value, grid)?;
        }
        let shape = Shape { grid, block, dynamic: config.sharedMemBytes };
        // SAFETY: the program's parameters.
        unsafe { launch(function, &shape, (config.hStream, default), (params, extra)) }
    }
    /// `cuLaunchCooperativeKernel`: grids of one block.
    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz |default| (
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_cooperative(grid)?;
        let shape = Shape { grid, block, dynamic: shared };
        // SAFETY: the program's parameters.
        unsafe { launch(function, &shape, (stream, default), (params, std::ptr::null_mut())) }
    }
}
