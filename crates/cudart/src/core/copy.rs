//! Copies: which way they go, and the driver's description of those with more than one dimension.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUstream,
};
use penstock_cuda_sys::runtime::{Memcpy3DParms, PitchedPtr, Pos, copy_kind};
use penstock_cuda_sys::runtime_codes as code;

use super::array::element_bytes;
use super::context::Current;
use crate::edge::{RtError, RtResult};

/// Whose memory something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Device,
}

/// Whose memory source and destination are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) from: Side,
    pub(crate) to: Side,
}

/// Whether the driver knows an address as memory of a device.
pub(crate) fn side_of(current: Current, pointer: *const c_void) -> Side {
    let mut kind: c_uint = 0;
    // SAFETY: a place for the answer, which is of this size for this attribute.
    let known = unsafe {
        current.driver.cuPointerGetAttribute(
            (&raw mut kind).cast(),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            device_pointer(pointer),
        )
    };
    if known.is_ok() && kind == CU_MEMORYTYPE_DEVICE { Side::Device } else { Side::Host }
}

/// The address of memory of a device.
pub(crate) fn device_pointer(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}

/// The way of a copy between two addresses.
///
/// # Errors
/// The kind is none, or a side that it says is the program's is a device's: no address of a device may be touched here.
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

/// What a kind says about an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Host,
    Device,
    /// As the address tells.
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
            Self::Host if side_of(current, pointer) == Side::Device => Err(RtError::INVALID_VALUE),
            Self::Host => Ok(Side::Host),
        }
    }
}

/// How a copy ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Before the function returns, as far as the program can tell.
    Blocking,
    /// Some time later, in the order of the stream.
    Queued,
}

/// One dimension, `bytes` long.
///
/// # Safety
/// Both sides have so many bytes, and the program's stay until the copy ends.
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
    // The driver's blocking functions use the legacy default stream; another stream is waited for.
    let whole = mode == Mode::Blocking && stream.is_null();
    // SAFETY: as the caller promises.
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
            (Side::Host, Side::Device) if whole => driver.cuMemcpyHtoD(to, source, bytes),
            (Side::Host, Side::Device) => driver.cuMemcpyHtoDAsync(to, source, bytes, stream),
            (Side::Device, Side::Host) if whole => driver.cuMemcpyDtoH(destination, from, bytes),
            (Side::Device, Side::Host) => {
                driver.cuMemcpyDtoHAsync(destination, from, bytes, stream)
            }
            (Side::Device, Side::Device) if whole => driver.cuMemcpyDtoD(to, from, bytes),
            // Within devices even the blocking function does not wait.
            (Side::Device, Side::Device) => {
                return driver.cuMemcpyDtoDAsync(to, from, bytes, stream);
            }
        }?;
        finish(current, stream, mode, whole)
    }
}

/// Waits where a blocking copy was made of a queued one.
///
/// # Safety
/// The stream is one of the driver's.
unsafe fn finish(current: Current, stream: CUstream, mode: Mode, whole: bool) -> RtResult {
    if mode == Mode::Queued || whole {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe { current.driver.cuStreamSynchronize(stream) }
}

/// One end of a copy with rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// Memory, with the bytes from row to row.
    Memory { pointer: *mut c_void, pitch: usize },
    /// An array, with bytes and rows to skip.
    Array { array: CUarray, x: usize, y: usize },
}

impl Rows {
    fn pointer(&self) -> Option<*const c_void> {
        match self {
            Self::Memory { pointer, .. } => Some(*pointer),
            Self::Array { .. } => None,
        }
    }
}

/// Rows of `width` bytes.
///
/// # Safety
/// Both sides have so many, and the program's stay until the copy ends.
pub(crate) unsafe fn rows(
    current: Current,
    destination: Rows,
    source: Rows,
    size: (usize, usize),
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let (width, height) = size;
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
        Rows::Array { array, x, y } => {
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
        Rows::Array { array, x, y } => {
            copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
            (copy.dstArray, copy.dstXInBytes, copy.dstY) = (array, x, y);
        }
    }
    let whole = mode == Mode::Blocking && stream.is_null();
    // SAFETY: as the caller promises; the description lives until the function returns.
    unsafe {
        if whole {
            current.driver.cuMemcpy2DUnaligned(&raw const copy)?;
        } else {
            current.driver.cuMemcpy2DAsync(&raw const copy, stream)?;
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

/// A box, as `cudaMemcpy3D` describes it.
///
/// # Safety
/// As the function asks.
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
    // SAFETY: as the caller promises; the description lives until the function returns.
    unsafe {
        if whole {
            current.driver.cuMemcpy3D(&raw const copy)?;
        } else {
            current.driver.cuMemcpy3DAsync(&raw const copy, stream)?;
        }
        finish(current, stream, mode, whole)
    }
}

/// A copy of bytes as the driver describes boxes.
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

/// A box, as the driver describes it.
///
/// # Errors
/// It is none, or an array is none.
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
    (copy.srcXInBytes, copy.srcY, copy.srcZ) = start(parms.src_pos, from_element)?;
    (copy.dstXInBytes, copy.dstY, copy.dstZ) = start(parms.dst_pos, to_element)?;
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

/// Bytes of an element, if the end is an array.
fn element(current: Current, array: *mut c_void) -> RtResult<Option<usize>> {
    if array.is_null() { Ok(None) } else { element_bytes(current, array.cast()).map(Some) }
}

/// Where a copy starts: bytes, rows, slices. Positions count elements; those of memory are bytes.
fn start(position: Pos, element: Option<usize>) -> RtResult<(usize, usize, usize)> {
    let x = position.x.checked_mul(element.unwrap_or(1)).ok_or(RtError::INVALID_VALUE)?;
    Ok((x, position.y, position.z))
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
        assert_eq!(start(position, Some(8)), Ok((24, 4, 5)));
        assert_eq!(start(position, None), Ok((3, 4, 5)));
        assert_eq!(start(Pos { x: usize::MAX, ..position }, Some(8)), Err(RtError::INVALID_VALUE));
    }
}
