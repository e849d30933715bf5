//! Launches in the form used before CUDA 4.0: the program sets block size and parameters one by
//! one, and the function keeps them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use penstock_cuda_sys::driver::*;

use super::launch::launch;
use crate::core::module::Function;
use crate::core::setup::LaunchSetup;
use crate::core::shape::LaunchShape;
use crate::edge::{Bytes, CuResult, DefaultStream, Object as _, check_process, cu_entry, require};

/// Changes the setup of a function.
fn set(
    function: CUfunction,
    change: impl FnOnce(&Function, &mut LaunchSetup) -> CuResult,
) -> CuResult {
    check_process()?;
    let function = Function::borrow(function)?;
    change(&function, &mut function.setup.lock())
}

/// Sets bytes of the parameters.
fn set_bytes(function: CUfunction, offset: c_int, bytes: &[u8]) -> CuResult {
    let offset = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    set(function, |function, setup| setup.put(offset, bytes, function.params_end()))
}

/// Launches with the setup of the function.
///
/// # Safety
/// The parameters in the setup are those of the function.
unsafe fn launch_grid(function: CUfunction, grid: (c_int, c_int), stream: CUstream) -> CuResult {
    check_process()?;
    let number = |size: c_int| u32::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let grid = [number(grid.0)?, number(grid.1)?, 1];
    let (block, dynamic, mut bytes) = {
        let function = Function::borrow(function)?;
        let setup = function.setup.lock();
        (setup.block, setup.dynamic, setup.params.clone())
    };
    let mut size = bytes.len();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
        bytes.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
    ];
    let extra = if bytes.is_empty() { null_mut() } else { extra.as_mut_ptr() };
    let shape = LaunchShape { grid, block, dynamic };
    // SAFETY: `extra` is the list above, and the caller promises that its parameters are those of
    // the function.
    unsafe { launch(function, &shape, stream, DefaultStream::Legacy, null_mut(), extra) }
}

cu_entry! {
    fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) {
        let positive = |size: c_int| u32::try_from(size).ok().filter(|size| *size > 0).ok_or(CUDA_ERROR_INVALID_VALUE);
        let block = [positive(x)?, positive(y)?, positive(z)?];
        set(function, |_, setup| {
            setup.block = block;
            Ok(())
        })
    }
    fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) {
        set(function, |_, setup| {
            setup.dynamic = bytes;
            Ok(())
        })
    }
    fn cuParamSetSize(function: CUfunction, bytes: c_uint) {
        let bytes = usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        set(function, |function, setup| setup.resize(bytes, function.params_end()))
    }
    fn cuParamSeti(function: CUfunction, offset: c_int, value: c_uint) {
        set_bytes(function, offset, &value.to_le_bytes())
    }
    fn cuParamSetf(function: CUfunction, offset: c_int, value: f32) {
        set_bytes(function, offset, &value.to_le_bytes())
    }
    fn cuParamSetv(function: CUfunction, offset: c_int, value: *mut c_void, bytes: c_uint) {
        require(!value.is_null() || bytes == 0, CUDA_ERROR_INVALID_VALUE)?;
        if bytes == 0 {
            return set_bytes(function, offset, &[]);
        }
        // SAFETY: the program promises `bytes` bytes at `value`.
        let bytes = unsafe { Bytes::new(value, bytes as usize) }?;
        set_bytes(function, offset, bytes.read())
    }
    /// Launches a grid of one block.
    fn cuLaunch(function: CUfunction) {
        // SAFETY: the program promises what `launch_grid` demands.
        unsafe { launch_grid(function, (1, 1), null_mut()) }
    }
    fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) {
        // SAFETY: the program promises what `launch_grid` demands.
        unsafe { launch_grid(function, (width, height), null_mut()) }
    }
    fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) {
        // SAFETY: the program promises what `launch_grid` demands.
        unsafe { launch_grid(function, (width, height), stream) }
    }
}
