use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray};
use penstock_cuda_sys::runtime::{ChannelFormatDesc, Extent};

use crate::core::array::{channels, describe, format};
use crate::core::context::current;
use crate::core::store;
use crate::edge::{RtError, RtResult, entry, returning};

/// # Safety
/// Each pointer is null or valid as the functions below require.
unsafe fn create(
    array: *mut CUarray,
    desc: *const ChannelFormatDesc,
    extent: Extent,
    flags: c_uint,
) -> RtResult {
    let current = current()?;
    if array.is_null() || desc.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let (format, channels) = format(&unsafe { desc.read_unaligned() })?;
    let (width, height, depth) = (extent.width, extent.height, extent.depth);
    if flags == 0 && depth == 0 {
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: width,
            Height: height,
            Format: format,
            NumChannels: channels,
        };
        // SAFETY: the caller upholds this function's contract. The description outlives the call.
        return unsafe { current.driver.cuArrayCreate_v2(array, &raw const descriptor) };
    }
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    };
    // SAFETY: the caller upholds this function's contract. The description outlives the call.
    unsafe { current.driver.cuArray3DCreate_v2(array, &raw const descriptor) }
}

/// Returns the description of an array element.
///
/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    f: c_int,
) -> ChannelFormatDesc {
    let made = ChannelFormatDesc { x, y, z, w, f };
    returning(made, || made)
}

entry! {
    /// Allocates an array of one or two dimensions.
    fn cudaMallocArray(
        array: *mut CUarray, desc: *const ChannelFormatDesc, width: usize, height: usize, flags: c_uint,
    ) {
        create(array, desc, Extent { width, height, depth: 0 }, flags)
    }
    /// Allocates an array of up to three dimensions, or a layered array.
    fn cudaMalloc3DArray(array: *mut CUarray, desc: *const ChannelFormatDesc, extent: Extent, flags: c_uint) {
        create(array, desc, extent, flags)
    }
    fn cudaFreeArray(array: CUarray) {
        let current = current()?;
        if array.is_null() {
            return Ok(());
        }
        current.driver.cuArrayDestroy(array)
    }
    /// Returns the element description, size and flags of an array.
    fn cudaArrayGetInfo(desc: *mut ChannelFormatDesc, extent: *mut Extent, flags: *mut c_uint, array: CUarray) {
        let found = describe(current()?, array)?;
        store(desc, channels(&found)?);
        store(extent, Extent { width: found.Width, height: found.Height, depth: found.Depth });
        store(flags, found.Flags);
        Ok(())
    }
    /// Returns the description of an array's elements.
    fn cudaGetChannelDesc(desc: *mut ChannelFormatDesc, array: *const c_void) {
        let current = current()?;
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store(desc, channels(&describe(current, array.cast_mut().cast())?)?);
        Ok(())
    }
}
