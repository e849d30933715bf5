use penstock_cuda_sys::driver::*;

use crate::core::array::Array;
use crate::core::context::Context;
use crate::edge::{CuResult, Object as _, check_process, cu_entry, load, require, store};

/// # Safety
/// `result` is null or writable.
unsafe fn create(result: *mut CUarray, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let array = Array::create(&*Context::current()?, descriptor)?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, array.raw()) };
    Ok(())
}

cu_entry! {
    fn cuArrayCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) {
        // SAFETY: the program promises that `descriptor` is null or readable.
        let flat = unsafe { load(descriptor) }?;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: flat.Width,
            Height: flat.Height,
            Depth: 0,
            Format: flat.Format,
            NumChannels: flat.NumChannels,
            Flags: 0,
        };
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result, &descriptor) }
    }
    fn cuArray3DCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) {
        // SAFETY: the program promises what `create` and `load` demand.
        unsafe { create(result, &load(descriptor)?) }
    }
    fn cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) {
        require(!descriptor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let of = Array::borrow(array)?.descriptor;
        let flat = CUDA_ARRAY_DESCRIPTOR {
            Width: of.Width,
            Height: of.Height,
            Format: of.Format,
            NumChannels: of.NumChannels,
        };
        // SAFETY: the program promises that `descriptor` is null or writable.
        unsafe { store(descriptor, flat) };
        Ok(())
    }
    fn cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) {
        require(!descriptor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let of = Array::borrow(array)?.descriptor;
        // SAFETY: the program promises that `descriptor` is null or writable.
        unsafe { store(descriptor, of) };
        Ok(())
    }
    fn cuArrayDestroy(array: CUarray) {
        check_process()?;
        Array::borrow(array)?.destroy()
    }
}
