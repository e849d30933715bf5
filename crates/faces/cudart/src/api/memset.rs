use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::{Extent, PitchedPtr};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{Current, current};
use crate::core::copy::{Side, device_pointer, is_managed, side_of};
use crate::edge::{RtError, RtResult, by_default, on_stream};

/// Returns the lowest byte, which is the "constant byte value" of the functions below.
#[allow(clippy::cast_possible_truncation, reason = "that is what the function does")]
const fn byte(value: c_int) -> u8 {
    value.cast_unsigned() as u8
}

/// # Safety
/// Arguments are as CUDA requires of the functions below.
#[inline]
unsafe fn fill(
    memory: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: CUstream,
    queued: bool,
) -> RtResult {
    let current = current()?;
    if bytes == 0 {
        return Ok(());
    }
    let to = device_pointer(memory);
    // SAFETY: the driver checks the address.
    unsafe {
        if queued || !stream.is_null() {
            current.driver.cuMemsetD8Async(to, byte(value), bytes, stream)?;
            finish(current, memory, stream, queued)
        } else {
            current.driver.cuMemsetD8_v2(to, byte(value), bytes)
        }
    }
}

/// Waits for a fill that is not queued, if the host may use the memory at once.
///
/// # Safety
/// The stream belongs to the driver.
unsafe fn finish(
    current: Current,
    memory: *const c_void,
    stream: CUstream,
    queued: bool,
) -> RtResult {
    let is_seen = || is_managed(current, memory) || side_of(current, memory) == Side::Host;
    if queued || !is_seen() {
        return Ok(());
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuStreamSynchronize(stream) }
}

/// Rows of memory. `width` and `pitch` are in bytes.
#[derive(Clone, Copy)]
struct Field {
    memory: *mut c_void,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Field {
    /// # Safety
    /// Arguments are as CUDA requires of the functions below.
    unsafe fn fill(
        self,
        current: Current,
        value: c_int,
        stream: CUstream,
        queued: bool,
    ) -> RtResult {
        let Self { memory, pitch, width, height } = self;
        if width == 0 || height == 0 {
            return Ok(());
        }
        if pitch < width && height > 1 {
            return Err(RtError(code::INVALID_PITCH_VALUE));
        }
        let to = device_pointer(memory);
        // SAFETY: the driver checks the addresses.
        unsafe {
            if queued || !stream.is_null() {
                current.driver.cuMemsetD2D8Async(to, pitch, byte(value), width, height, stream)?;
                finish(current, memory, stream, queued)
            } else {
                current.driver.cuMemsetD2D8_v2(to, pitch, byte(value), width, height)
            }
        }
    }
}

/// # Safety
/// Arguments are as CUDA requires of the functions below.
unsafe fn fill_box(
    memory: PitchedPtr,
    value: c_int,
    extent: Extent,
    stream: CUstream,
    queued: bool,
) -> RtResult {
    let current = current()?;
    if extent.width == 0 || extent.height == 0 {
        return Ok(());
    }
    let slice = memory.pitch.checked_mul(memory.ysize).ok_or(RtError::INVALID_VALUE)?;
    // Slices that follow each other without a gap are filled as one field.
    let (fields, height) = match memory.ysize == extent.height {
        true => (1, extent.height.checked_mul(extent.depth).ok_or(RtError::INVALID_VALUE)?),
        false => (extent.depth, extent.height),
    };
    for index in 0..fields {
        let start = slice.checked_mul(index).ok_or(RtError::INVALID_VALUE)?;
        let field = Field {
            memory: memory.ptr.wrapping_byte_add(start),
            pitch: memory.pitch,
            width: extent.width,
            height,
        };
        // SAFETY: the caller upholds the contract of this function.
        unsafe { field.fill(current, value, stream, queued) }?;
    }
    Ok(())
}

by_default! {
    fn cudaMemset, cudaMemset_ptds(memory: *mut c_void, value: c_int, bytes: usize; stream) {
        fill(memory, value, bytes, stream, false)
    }
    /// Fills rows of memory.
    fn cudaMemset2D, cudaMemset2D_ptds(memory: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize; stream) {
        Field { memory, pitch, width, height }.fill(current()?, value, stream, false)
    }
    /// Fills a box of memory.
    fn cudaMemset3D, cudaMemset3D_ptds(memory: PitchedPtr, value: c_int, extent: Extent; stream) {
        fill_box(memory, value, extent, stream, false)
    }
}

on_stream! {
    /// Fills memory in the order of a stream.
    fn cudaMemsetAsync, cudaMemsetAsync_ptsz(memory: *mut c_void, value: c_int, bytes: usize; stream) {
        fill(memory, value, bytes, stream, true)
    }
    /// Fills rows of memory in the order of a stream.
    fn cudaMemset2DAsync, cudaMemset2DAsync_ptsz(
        memory: *mut c_void,
        pitch: usize,
        value: c_int,
        width: usize,
        height: usize;
        stream
    ) {
        Field { memory, pitch, width, height }.fill(current()?, value, stream, true)
    }
    /// Fills a box of memory in the order of a stream.
    fn cudaMemset3DAsync, cudaMemset3DAsync_ptsz(memory: PitchedPtr, value: c_int, extent: Extent; stream) {
        fill_box(memory, value, extent, stream, true)
    }
}
