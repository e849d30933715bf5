//! Arrays.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray};
use penstock_cuda_sys::runtime::{ChannelFormatDesc, Extent};

use crate::core::array::{channels, describe, format};
use crate::core::context::current;
use crate::core::store;
use crate::edge::{RtError, RtResult, entry, returning};

/// # Safety
/// Both are null or what the functions below say.
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
    // SAFETY: as the caller promises.
    let (format, channels) = format(&unsafe { desc.read_unaligned() })?;
    let (width, height, depth) = (extent.width, extent.height, extent.depth);
    if flags == 0 && depth == 0 {
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: width,
            Height: height,
            Format: format,
            NumChannels: channels,
        };
        // SAFETY: as the caller promises; the description lives until the function returns.
        return unsafe { current.driver.cuArrayCreate(array, &raw const descriptor) };
    }
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    };
    // SAFETY: as the caller promises; the description lives until the function returns.
    unsafe { current.driver.cuArray3DCreate(array, &raw const descriptor) }
}

/// The description of an element.
///
/// # Safety
/// None is asked.
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
    /// An array of one dimension or two.
    fn cudaMallocArray(
        array: *mut CUarray, desc: *const ChannelFormatDesc, width: usize, height: usize, flags: c_uint,
    ) {
        create(array, desc, Extent { width, height, depth: 0 }, flags)
    }
    /// An array of up to three dimensions, or of layers.
    fn cudaMalloc3DArray(array: *mut CUarray, desc: *const ChannelFormatDesc, extent: Extent, flags: c_uint) {
        create(array, desc, extent, flags)
    }
    /// Gives an array back.
    fn cudaFreeArray(array: CUarray) {
        let current = current()?;
        if array.is_null() {
            return Ok(());
        }
        current.driver.cuArrayDestroy(array)
    }
    /// Elements, size and flags of an array.
    fn cudaArrayGetInfo(desc: *mut ChannelFormatDesc, extent: *mut Extent, flags: *mut c_uint, array: CUarray) {
        let found = describe(current()?, array)?;
        store(desc, channels(&found)?);
        store(extent, Extent { width: found.Width, height: found.Height, depth: found.Depth });
        store(flags, found.Flags);
        Ok(())
    }
    /// Elements of an array.
    fn cudaGetChannelDesc(desc: *mut ChannelFormatDesc, array: *const c_void) {
        let current = current()?;
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store(desc, channels(&describe(current, array.cast_mut().cast())?)?);
        Ok(())
    }
}
