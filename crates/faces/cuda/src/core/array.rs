//! CUDA arrays: rows of pixels in the device's memory. Only the handle is opaque.

use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use super::block::Block;
use super::context::Context;
use super::device::Device;
use super::row::RectSize;
use super::stream_list;
use crate::edge::{CuResult, Object, forget, has_handle, new_number, publish, require};

/// Rows begin at multiples of this number of bytes, the texture pitch alignment that the devices
/// report.
const ROW_BYTES: u64 = 32;

pub(crate) struct Array {
    number: u64,
    /// Number of the context that owns the array.
    context: u64,
    device: Arc<Device>,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    block: Block,
    pub(crate) address: u64,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
    /// Bytes of a row that hold pixels.
    pub(crate) row: u64,
}

has_handle!(Array: CUarray_st, CUDA_ERROR_INVALID_HANDLE, ends with context);

/// Returns the bytes of one channel, or `None` if the format is not served.
pub(crate) fn channel_bytes(format: u32) -> Option<u64> {
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => Some(1),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => Some(2),
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => Some(4),
        _ => None,
    }
}

/// Checks what layered arrays and cube maps require. Layers and faces are slices of the array.
fn check_flags(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult {
    const SERVED: u32 = CUDA_ARRAY3D_LAYERED
        | CUDA_ARRAY3D_SURFACE_LDST
        | CUDA_ARRAY3D_CUBEMAP
        | CUDA_ARRAY3D_TEXTURE_GATHER;
    const FACES: usize = 6;
    let has = |flag: u32| descriptor.Flags & flag != 0;
    require(descriptor.Flags & !SERVED == 0, CUDA_ERROR_NOT_SUPPORTED)?;
    let (width, height, depth) = (descriptor.Width, descriptor.Height, descriptor.Depth);
    require(!has(CUDA_ARRAY3D_LAYERED) || depth > 0, CUDA_ERROR_INVALID_VALUE)?;
    if has(CUDA_ARRAY3D_CUBEMAP) {
        // "Width must be equal to Height, and Depth must be six"; with layers, a multiple of six.
        let whole =
            if has(CUDA_ARRAY3D_LAYERED) { depth.is_multiple_of(FACES) } else { depth == FACES };
        require(width == height && whole, CUDA_ERROR_INVALID_VALUE)?;
    }
    Ok(())
}

impl Array {
    pub(crate) fn create(
        context: &Context,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CuResult<Arc<Self>> {
        context.check()?;
        check_flags(descriptor)?;
        if descriptor.Width == 0 || ![1, 2, 4].contains(&descriptor.NumChannels) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let channel = channel_bytes(descriptor.Format).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let count = |size: usize| u64::try_from(size.max(1)).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        let pixel = channel * u64::from(descriptor.NumChannels);
        let row = count(descriptor.Width)?.checked_mul(pixel).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let pitch = row.checked_next_multiple_of(ROW_BYTES).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let rows = count(descriptor.Height)?.checked_mul(count(descriptor.Depth)?);
        let size = rows.and_then(|rows| rows.checked_mul(pitch)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let block = context.device.allocate_block(size, context.number())?;
        let array = Arc::new(Self {
            number: new_number(),
            context: context.number(),
            device: context.device.clone(),
            descriptor: *descriptor,
            block,
            address: block.address,
            pitch,
            row,
        });
        publish(&array);
        Ok(array)
    }

    pub(crate) fn destroy(&self) -> CuResult {
        forget(self).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        self.device.release_block(self.block, stream_list::busy_on(&self.device))
    }

    /// Returns the address of byte `x` of row `y` of slice `z`. Fails unless a rectangle of this
    /// size from there on lies within the array.
    pub(crate) fn at(&self, [x, y, z]: [u64; 3], size: RectSize) -> CuResult<u64> {
        let (rows, slices) =
            (self.descriptor.Height.max(1) as u64, self.descriptor.Depth.max(1) as u64);
        let fits = x.checked_add(size.width).is_some_and(|end| end <= self.row)
            && y.checked_add(size.height).is_some_and(|end| end <= rows)
            && z < slices;
        if fits {
            Ok(self.address + (z * rows + y) * self.pitch + x)
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}
