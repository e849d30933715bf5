//! Arrays.

use penstock_cuda_sys::driver::*;

use crate::core::array::Array;
use crate::core::context::Context;
use crate::core::platform;
use crate::edge::{CuResult, Object as _, cu_entry, load, require, store};

/// # Safety
/// `result` is `NULL` or a place for a handle.
unsafe fn create(result: *mut CUarray, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let array = Array::create(&*Context::current()?, descriptor)?;
    // SAFETY: the caller's promise.
    unsafe { store(result, array.raw()) };
    Ok(())
}

cu_entry! {
    /// `cuArrayCreate`.
    fn cuArrayCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) {
        // SAFETY: the program's description.
        let flat = unsafe { load(descriptor) }?;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: flat.Width,
            Height: flat.Height,
            Depth: 0,
            Format: flat.Format,
            NumChannels: flat.NumChannels,
            Flags: 0,
        };
        // SAFETY: the program's place.
        unsafe { create(result, &descriptor) }
    }
    /// `cuArray3DCreate`.
    fn cuArray3DCreate_v2(result: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) {
        // SAFETY: the program's description and place.
        unsafe { create(result, &load(descriptor)?) }
    }
    /// `cuArrayGetDescriptor`.
    fn cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) {
        require(!descriptor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let of = Array::borrow(array)?.descriptor;
        let flat = CUDA_ARRAY_DESCRIPTOR {
            Width: of.Width,
            Height: of.Height,
            Format: of.Format,
            NumChannels: of.NumChannels,
        };
        // SAFETY: a place for the description.
        unsafe { store(descriptor, flat) };
        Ok(())
    }
    /// `cuArray3DGetDescriptor`.
    fn cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) {
        require(!descriptor.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let of = Array::borrow(array)?.descriptor;
        // SAFETY: a place for the description.
        unsafe { store(descriptor, of) };
        Ok(())
    }
    /// `cuArrayDestroy`.
    fn cuArrayDestroy(array: CUarray) {
        platform::check_process()?;
        Array::borrow(array)?.destroy()
    }
}
