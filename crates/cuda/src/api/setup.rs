//! Launches as they were before version 4: shape and parameters are set beforehand, piece by piece, and stay with the function.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{MutexGuard, PoisonError};

use penstock_cuda_sys::driver::*;

use super::launch::launch;
use crate::core::launch::Shape;
use crate::core::module::Function;
use crate::core::platform;
use crate::core::setup::Setup;
use crate::core::stream::Default;
use crate::edge::{Bytes, CuResult, Object as _, cu_entry, require};

/// Changes what is set for a function.
fn set(function: CUfunction, change: impl FnOnce(&Function, &mut Setup) -> CuResult) -> CuResult {
    platform::check_process()?;
    let function = Function::borrow(function)?;
    change(&function, &mut lock(&function))
}

fn lock(function: &Function) -> MutexGuard<'_, Setup> {
    function.setup.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets bytes of the parameters.
fn set_bytes(function: CUfunction, offset: c_int, bytes: &[u8]) -> CuResult {
    let offset = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    set(function, |function, setup| setup.put(offset, bytes, function.params_end()))
}

/// Launches with what is set.
///
/// # Safety
/// The parameters that were set are the function's.
unsafe fn launch_grid(function: CUfunction, grid: (c_int, c_int), stream: CUstream) -> CuResult {
    platform::check_process()?;
    let number = |size: c_int| u32::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let grid = [number(grid.0)?, number(grid.1)?, 1];
    let (block, dynamic, mut bytes) = {
        let function = Function::borrow(function)?;
        let setup = lock(&function);
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
    let shape = Shape { grid, block, dynamic };
    // SAFETY: the list above; the caller's promise about what it leads to.
    unsafe { launch(function, &shape, (stream, Default::Legacy), (null_mut(), extra)) }
}

cu_entry! {
    /// `cuFuncSetBlockShape`.
    fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) {
        let positive = |size: c_int| u32::try_from(size).ok().filter(|size| *size > 0).ok_or(CUDA_ERROR_INVALID_VALUE);
        let block = [positive(x)?, positive(y)?, positive(z)?];
        set(function, |_, setup| {
            setup.block = block;
            Ok(())
        })
    }
    /// `cuFuncSetSharedSize`.
    fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) {
        set(function, |_, setup| {
            setup.dynamic = bytes;
            Ok(())
        })
    }
    /// `cuParamSetSize`.
    fn cuParamSetSize(function: CUfunction, bytes: c_uint) {
        let bytes = usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        set(function, |function, setup| setup.resize(bytes, function.params_end()))
    }
    /// `cuParamSeti`.
    fn cuParamSeti(function: CUfunction, offset: c_int, value: c_uint) {
        set_bytes(function, offset, &value.to_le_bytes())
    }
    /// `cuParamSetf`.
    fn cuParamSetf(function: CUfunction, offset: c_int, value: f32) {
        set_bytes(function, offset, &value.to_le_bytes())
    }
    /// `cuParamSetv`.
    fn cuParamSetv(function: CUfunction, offset: c_int, value: *mut c_void, bytes: c_uint) {
        require(!value.is_null() || bytes == 0, CUDA_ERROR_INVALID_VALUE)?;
        if bytes == 0 {
            return set_bytes(function, offset, &[]);
        }
        // SAFETY: so many bytes of the program.
        let bytes = unsafe { Bytes::new(value, bytes as usize) }?;
        set_bytes(function, offset, bytes.read())
    }
    /// `cuLaunch`: one block.
    fn cuLaunch(function: CUfunction) {
        // SAFETY: the program's parameters.
        unsafe { launch_grid(function, (1, 1), null_mut()) }
    }
    /// `cuLaunchGrid`.
    fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) {
        // SAFETY: the program's parameters.
        unsafe { launch_grid(function, (width, height), null_mut()) }
    }
    /// `cuLaunchGridAsync`.
    fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) {
        // SAFETY: the program's parameters.
        unsafe { launch_grid(function, (width, height), stream) }
    }
}
