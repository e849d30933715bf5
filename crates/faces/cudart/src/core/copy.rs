//! Copies: their direction, and the driver's description of copies with several dimensions.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUstream,
};
use penstock_cuda_sys::runtime::{Memcpy3DParms, PitchedPtr, Pos, copy_kind};
use penstock_cuda_sys::runtime_codes as code;

use super::array::element_bytes;
use super::context::Current;
use crate::edge::{RtError, RtResult};

/// Owner of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Device,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) from: Side,
    pub(crate) to: Side,
}

/// Returns [`Side::Device`] if the driver knows the address as device memory.
pub(crate) fn side_of(current: Current, pointer: *const c_void) -> Side {
    match attribute(current, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) {
        Some(CU_MEMORYTYPE_DEVICE) => Side::Device,
        _ => Side::Host,
    }
}

/// Returns whether the host may use the memory of a device at an address.
pub(crate) fn is_managed(current: Current, pointer: *const c_void) -> bool {
    attribute(current, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer).is_some_and(|managed| managed != 0)
}

/// Asks the driver for an attribute of an address whose answer is at most a `c_uint`. Returns
/// `None` if the driver does not know the address.
fn attribute(current: Current, attribute: c_uint, pointer: *const c_void) -> Option<c_uint> {
    // Some drivers write only one byte of a Boolean answer. The other bytes stay zero.
    let mut answer: c_uint = 0;
    // SAFETY: the pointer is valid for a write of the answer, at most a `c_uint`.
    let known = unsafe {
        current.driver.cuPointerGetAttribute(
            (&raw mut answer).cast(),
            attribute,
            device_pointer(pointer),
        )
    };
    known.is_ok().then_some(answer)
}

/// Converts the address of device memory to the driver's type.
pub(crate) fn device_pointer(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}

/// Returns the direction of a copy between two addresses.
///
/// # Errors
/// The kind is invalid, or names the host for an address of a device that the host must not touch.
pub(crate) fn way(
    current: Current,
    kind: c_int,
    destination: *const c_void,
    source: *const c_void,
) -> RtResult<Way> {
    let ends = Ends::of(kind)?;
    Ok(Way {
        from: ends.from.resolve(current, source)?,
        to: ends.to.resolve(current, destination)?,
    })
}

/// What a copy kind says about one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Host,
    Device,
    /// Determined by the address.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    from: End,
    to: End,
}

impl Ends {
    fn of(kind: c_int) -> RtResult<Self> {
        let (from, to) = match kind {
            copy_kind::HOST_TO_HOST => (End::Host, End::Host),
            copy_kind::HOST_TO_DEVICE => (End::Host, End::Device),
            copy_kind::DEVICE_TO_HOST => (End::Device, End::Host),
            copy_kind::DEVICE_TO_DEVICE => (End::Device, End::Device),
            copy_kind::DEFAULT => (End::Any, End::Any),
            _ => return Err(RtError(code::INVALID_MEMCPY_DIRECTION)),
        };
        Ok(Self { from, to })
    }
}

impl End {
    fn resolve(self, current: Current, pointer: *const c_void) -> RtResult<Side> {
        match self {
            Self::Device => Ok(Side::Device),
            Self::Any => Ok(side_of(current, pointer)),
            Self::Host if side_of(current, pointer) == Side::Host => Ok(Side::Host),
            // The driver accepts managed memory in both places.
            Self::Host if is_managed(current, pointer) => Ok(Side::Host),
            Self::Host => Err(RtError::INVALID_VALUE),
        }
    }
}

/// The moment at which a copying function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// After the copy, as far as the program can tell.
    Blocking,
    /// Before the copy, which takes its turn in the stream.
    Queued,
}

/// Copies `bytes` consecutive bytes.
///
/// # Safety
/// Both sides have `bytes` bytes, and the program's memory stays valid until the copy ends.
pub(crate) unsafe fn linear(
    current: Current,
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    way: Way,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    if bytes == 0 {
        return Ok(());
    }
    if destination.is_null() || source.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    let driver = current.driver;
    let (to, from) = (device_pointer(destination), device_pointer(source));
    // The driver's blocking functions use the legacy default stream. `finish` waits for others.
    let whole = mode == Mode::Blocking && stream.is_null();
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        match (way.from, way.to) {
            (Side::Host, Side::Host) if mode == Mode::Queued => {
                return driver.cuMemcpyAsync(to, from, bytes, stream);
            }
            (Side::Host, Side::Host) => {
                driver.cuStreamSynchronize(stream)?;
                std::ptr::copy(source.cast::<u8>(), destination.cast::<u8>(), bytes);
                Ok(())
            }
            (Side::Host, Side::Device) if whole => driver.cuMemcpyHtoD_v2(to, source, bytes),
            (Side::Host, Side::Device) => driver.cuMemcpyHtoDAsync_v2(to, source, bytes, stream),
            (Side::Device, Side::Host) if whole => driver.cuMemcpyDtoH_v2(destination, from, bytes),
            (Side::Device, Side::Host) => {
                driver.cuMemcpyDtoHAsync_v2(destination, from, bytes, stream)
            }
            (Side::Device, Side::Device) if whole => driver.cuMemcpyDtoD_v2(to, from, bytes),
            // CUDA's blocking copies within device memory do not wait either.
            (Side::Device, Side::Device) => {
                return driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
            }
        }?;
        finish(current, stream, mode, whole)
    }
}

/// Waits for a blocking copy that was enqueued, unless the driver has waited already (`whole`).
///
/// # Safety
/// The stream belongs to the driver.
unsafe fn finish(current: Current, stream: CUstream, mode: Mode, whole: bool) -> RtResult {
    if mode == Mode::Queued || whole {
        return Ok(());
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { current.driver.cuStreamSynchronize(stream) }
}

/// One end of a copy of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// Memory. `pitch` is the number of bytes from one row to the next.
    Memory {
        pointer: *mut c_void,
        pitch: usize,
    },
    Array(ArrayPosition),
}

/// A position in an array, as the number of bytes and rows before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayPosition {
    pub(crate) array: CUarray,
    pub(crate) x: usize,
    pub(crate) y: usize,
}

/// The size of a rectangle in memory or in an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RectSize {
    /// Number of bytes in a row.
    pub(crate) width: usize,
    /// Number of rows.
    pub(crate) height: usize,
}

impl Rows {
    fn pointer(&self) -> Option<*const c_void> {
        match self {
            Self::Memory { pointer, .. } => Some(*pointer),
            Self::Array(_) => None,
        }
    }
}

/// Copies a rectangle of this size.
///
/// # Safety
/// Both sides have these rows, and the program's memory stays valid until the copy ends.
pub(crate) unsafe fn rows(
    current: Current,
    destination: Rows,
    source: Rows,
    size: RectSize,
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let RectSize { width, height } = size;
    let ends = Ends::of(kind)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    for end in [destination, source] {
        match end {
            Rows::Memory { pitch, .. } if pitch < width => {
                return Err(RtError(code::INVALID_PITCH_VALUE));
            }
            Rows::Memory { pointer, .. } if pointer.is_null() => {
                return Err(RtError::INVALID_VALUE);
            }
            _ => {}
        }
    }
    // SAFETY: all zeros is a valid value of this structure.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    (copy.WidthInBytes, copy.Height) = (width, height);
    let side = |end: End, rows: &Rows| {
        rows.pointer().map(|pointer| end.resolve(current, pointer)).transpose()
    };
    let (from, to) = (side(ends.from, &source)?, side(ends.to, &destination)?);
    match source {
        Rows::Memory { pointer, pitch } => {
            copy.srcMemoryType = memory_type(from);
            (copy.srcHost, copy.srcDevice, copy.srcPitch) =
                (pointer, device_pointer(pointer), pitch);
        }
        Rows::Array(ArrayPosition { array, x, y }) => {
            copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
            (copy.srcArray, copy.srcXInBytes, copy.srcY) = (array, x, y);
        }
    }
    match destination {
        Rows::Memory { pointer, pitch } => {
            copy.dstMemoryType = memory_type(to);
            (copy.dstHost, copy.dstDevice, copy.dstPitch) =
                (pointer, device_pointer(pointer), pitch);
        }
        Rows::Array(ArrayPosition { array, x, y }) => {
            copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
            (copy.dstArray, copy.dstXInBytes, copy.dstY) = (array, x, y);
        }
    }
    let whole = mode == Mode::Blocking && stream.is_null();
    // SAFETY: the caller upholds this function's contract. The description outlives the call.
    unsafe {
        if whole {
            current.driver.cuMemcpy2DUnaligned_v2(&raw const copy)?;
        } else {
            current.driver.cuMemcpy2DAsync_v2(&raw const copy, stream)?;
        }
        finish(current, stream, mode, whole)
    }
}

fn memory_type(side: Option<Side>) -> c_uint {
    match side {
        Some(Side::Device) => CU_MEMORYTYPE_DEVICE,
        Some(Side::Host) | None => CU_MEMORYTYPE_HOST,
    }
}

/// Copies the box that a `cudaMemcpy3D` description names.
///
/// # Safety
/// The description meets the requirements of `cudaMemcpy3D`.
pub(crate) unsafe fn boxes(
    current: Current,
    parms: &Memcpy3DParms,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let copy = describe_boxes(current, parms)?;
    if copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0 {
        return Ok(());
    }
    let whole = mode == Mode::Blocking && stream.is_null();
    // SAFETY: the caller upholds this function's contract. The description outlives the call.
    unsafe {
        if whole {
            current.driver.cuMemcpy3D_v2(&raw const copy)?;
        } else {
            current.driver.cuMemcpy3DAsync_v2(&raw const copy, stream)?;
        }
        finish(current, stream, mode, whole)
    }
}

/// Describes a copy of consecutive bytes as a box of one row.
pub(crate) fn describe_linear(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    way: Way,
) -> CUDA_MEMCPY3D {
    // SAFETY: all zeros is a valid value of this structure.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    (copy.srcMemoryType, copy.dstMemoryType) =
        (memory_type(Some(way.from)), memory_type(Some(way.to)));
    (copy.srcHost, copy.srcDevice) = (source, device_pointer(source));
    (copy.dstHost, copy.dstDevice) = (destination, device_pointer(destination));
    (copy.srcPitch, copy.srcHeight, copy.dstPitch, copy.dstHeight) = (bytes, 1, bytes, 1);
    copy
}

/// Converts the runtime's description of a box to the driver's.
///
/// # Errors
/// The description is invalid, or a handle is not an array.
pub(crate) fn describe_boxes(current: Current, parms: &Memcpy3DParms) -> RtResult<CUDA_MEMCPY3D> {
    let ends = Ends::of(parms.kind)?;
    let one_each = parms.src_array.is_null() != parms.src_ptr.ptr.is_null()
        && parms.dst_array.is_null() != parms.dst_ptr.ptr.is_null();
    if !one_each {
        return Err(RtError::INVALID_VALUE);
    }
    let extent = parms.extent;
    let from_element = element(current, parms.src_array)?;
    let to_element = element(current, parms.dst_array)?;
    let width = match (from_element, to_element) {
        (Some(from), Some(to)) if from != to => return Err(RtError::INVALID_VALUE),
        (Some(bytes), _) | (_, Some(bytes)) => {
            extent.width.checked_mul(bytes).ok_or(RtError::INVALID_VALUE)?
        }
        (None, None) => extent.width,
    };
    // SAFETY: all zeros is a valid value of this structure.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.WidthInBytes, copy.Height, copy.Depth) = (width, extent.height, extent.depth);
    [copy.srcXInBytes, copy.srcY, copy.srcZ] = start(parms.src_pos, from_element)?;
    [copy.dstXInBytes, copy.dstY, copy.dstZ] = start(parms.dst_pos, to_element)?;
    (copy.srcArray, copy.dstArray) = (parms.src_array.cast(), parms.dst_array.cast());
    (copy.srcHost, copy.srcDevice) = (parms.src_ptr.ptr, device_pointer(parms.src_ptr.ptr));
    (copy.dstHost, copy.dstDevice) = (parms.dst_ptr.ptr, device_pointer(parms.dst_ptr.ptr));
    (copy.srcPitch, copy.srcHeight) = (parms.src_ptr.pitch, parms.src_ptr.ysize);
    (copy.dstPitch, copy.dstHeight) = (parms.dst_ptr.pitch, parms.dst_ptr.ysize);
    copy.srcMemoryType = end_type(current, ends.from, from_element.is_some(), &parms.src_ptr)?;
    copy.dstMemoryType = end_type(current, ends.to, to_element.is_some(), &parms.dst_ptr)?;
    Ok(copy)
}

fn end_type(current: Current, end: End, is_array: bool, memory: &PitchedPtr) -> RtResult<c_uint> {
    if is_array {
        return Ok(CU_MEMORYTYPE_ARRAY);
    }
    end.resolve(current, memory.ptr).map(|side| memory_type(Some(side)))
}

/// Returns the size of the array's elements in bytes, or `None` if `array` is null. A null `array`
/// means that this side of the copy is linear memory.
fn element(current: Current, array: *mut c_void) -> RtResult<Option<usize>> {
    if array.is_null() { Ok(None) } else { element_bytes(current, array.cast()).map(Some) }
}

/// Returns where a copy starts, in bytes, rows and slices. `position.x` counts elements of an
/// array, or bytes of memory.
fn start(position: Pos, element: Option<usize>) -> RtResult<[usize; 3]> {
    let x = position.x.checked_mul(element.unwrap_or(1)).ok_or(RtError::INVALID_VALUE)?;
    Ok([x, position.y, position.z])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_none_is_refused() {
        for kind in [-1, 5, c_int::MAX] {
            assert_eq!(Ends::of(kind), Err(RtError(code::INVALID_MEMCPY_DIRECTION)));
        }
        assert_eq!(
            Ends::of(copy_kind::DEVICE_TO_HOST),
            Ok(Ends { from: End::Device, to: End::Host })
        );
    }

    #[test]
    fn positions_count_elements_of_arrays_and_bytes_of_memory() {
        let position = Pos { x: 3, y: 4, z: 5 };
        assert_eq!(start(position, Some(8)), Ok([24, 4, 5]));
        assert_eq!(start(position, None), Ok([3, 4, 5]));
        assert_eq!(start(Pos { x: usize::MAX, ..position }, Some(8)), Err(RtError::INVALID_VALUE));
    }
}
