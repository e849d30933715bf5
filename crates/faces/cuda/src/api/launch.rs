use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_process::notice;

use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::launch::{DescribedLaunch, LaunchParams};
use crate::core::library;
use crate::core::shape::LaunchShape;
use crate::core::stream::Stream;
use crate::edge::{Bytes, CuResult, DefaultStream, array, cu_stream_entry, load, require};

/// Returns the parameters in `kernelParams` and `extra`.
///
/// # Safety
/// Both are as the interface demands.
#[inline]
pub(super) unsafe fn params(
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult<LaunchParams> {
    if !each.is_null() {
        // "CUDA_ERROR_INVALID_VALUE will be returned if kernel parameters are specified with both
        // kernelParams and extra".
        require(extra.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        return Ok(LaunchParams::Each(each.cast_const().cast()));
    }
    if extra.is_null() {
        return Ok(LaunchParams::None);
    }
    /// Maximum number of names in a list. Only two are defined, so a longer list has no end.
    const NAMES_MAX: usize = 4;
    let (mut buffer, mut size) = (None, None);
    for index in 0..NAMES_MAX {
        // SAFETY: the caller promises a list with an end, which has not been reached.
        let name = unsafe { load(extra.add(2 * index)) }?.addr();
        if name == CU_LAUNCH_PARAM_END {
            break;
        }
        // SAFETY: the caller promises that a value follows each name.
        let value: *mut c_void = unsafe { load(extra.add(2 * index + 1)) }?;
        match name {
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(value),
            CU_LAUNCH_PARAM_BUFFER_SIZE => {
                // SAFETY: the caller promises that this value is the address of the size.
                size = Some(unsafe { load(value.cast_const().cast::<usize>()) }?)
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    let (Some(buffer), Some(size)) = (buffer, size) else { return Err(CUDA_ERROR_INVALID_VALUE) };
    // SAFETY: the caller promises a buffer of this size.
    unsafe { Bytes::new(buffer, size) }.map(LaunchParams::Packed)
}

/// # Safety
/// The parameters are those of the function.
#[inline]
pub(super) unsafe fn launch(
    function: CUfunction,
    shape: &LaunchShape,
    stream: CUstream,
    default: DefaultStream,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let (context, stream) = Stream::resolve(stream, default)?;
    let function = library::function(function)?;
    // "CUDA_ERROR_INVALID_HANDLE ... if the function is of another context than the stream".
    require(function.loaded.is_in(&context), CUDA_ERROR_INVALID_HANDLE)?;
    // SAFETY: the caller promises what `params` demands.
    let params = unsafe { params(each, extra) }?;
    // SAFETY: the caller promises what `DescribedLaunch::new` demands.
    let work =
        || unsafe { DescribedLaunch::new(function.clone(), *shape, &params) }.map(Work::Kernel);
    if capture::takes(&context, &stream, work)? {
        return Ok(());
    }
    // SAFETY: the caller promises the parameters of the function.
    unsafe { function.launch(&context, &stream, shape, &params) }
}

/// Checks an attribute of a launch with this grid.
pub(super) fn check_attribute(id: c_uint, value: &[u32; 16], grid: [u32; 3]) -> CuResult {
    match id {
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE if value[0] != 0 => check_cooperative(grid),
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if value[..3] != [1, 1, 1] => {
            Err(CUDA_ERROR_INVALID_CLUSTER_SIZE)
        }
        // All others are hints about caches and scheduling.
        _ => Ok(()),
    }
}

/// Checks a cooperative launch. All of its blocks must run at the same time, which is certain only
/// for a single block.
fn check_cooperative(grid: [u32; 3]) -> CuResult {
    if grid == [1, 1, 1] {
        return Ok(());
    }
    notice::once_about(
        "cooperative",
        format_args!("cooperative launches of more than one block are not served"),
    );
    Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
}

cu_stream_entry! {
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
        // SAFETY: the program promises what `launch` demands.
        unsafe { launch(function, &LaunchShape { grid, block, dynamic: shared }, stream, default, params, extra) }
    }
    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz |default| (
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        // SAFETY: the program promises that `config` is null or readable.
        let config = unsafe { load(config) }?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        // SAFETY: the program promises that `config.attrs` is null or has `config.numAttrs`
        // elements.
        for attribute in unsafe { array(config.attrs, config.numAttrs as usize) }? {
            check_attribute(attribute.id, &attribute.value, grid)?;
        }
        let shape = LaunchShape { grid, block, dynamic: config.sharedMemBytes };
        // SAFETY: the program promises what `launch` demands.
        unsafe { launch(function, &shape, config.hStream, default, params, extra) }
    }
    /// Serves only grids of one block.
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
        let shape = LaunchShape { grid, block, dynamic: shared };
        // SAFETY: the program promises what `launch` demands.
        unsafe { launch(function, &shape, stream, default, params, std::ptr::null_mut()) }
    }
}
