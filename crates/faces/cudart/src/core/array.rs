//! Arrays: formats of their elements, and copies that fill one row after another.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_cuda_sys::runtime::{ChannelFormatDesc, channel_kind};
use penstock_cuda_sys::runtime_codes as code;

use super::context::Current;
use super::copy::{ArrayPosition, Mode, RectSize, Rows, rows};
use crate::edge::{RtError, RtResult};

/// Returns the driver's format of a channel and the number of channels.
///
/// # Errors
/// No element has this description.
pub(crate) fn format(desc: &ChannelFormatDesc) -> RtResult<(c_uint, c_uint)> {
    let invalid = RtError(code::INVALID_CHANNEL_DESCRIPTOR);
    let bits = [desc.x, desc.y, desc.z, desc.w];
    let channels = bits.iter().take_while(|bits| **bits != 0).count();
    let equal = bits.iter().take(channels).all(|bits| *bits == desc.x);
    let rest_empty = bits.iter().skip(channels).all(|bits| *bits == 0);
    if !equal || !rest_empty || !matches!(channels, 1 | 2 | 4) {
        return Err(invalid);
    }
    let format = match (desc.f, desc.x) {
        (channel_kind::UNSIGNED, 8) => CU_AD_FORMAT_UNSIGNED_INT8,
        (channel_kind::UNSIGNED, 16) => CU_AD_FORMAT_UNSIGNED_INT16,
        (channel_kind::UNSIGNED, 32) => CU_AD_FORMAT_UNSIGNED_INT32,
        (channel_kind::SIGNED, 8) => CU_AD_FORMAT_SIGNED_INT8,
        (channel_kind::SIGNED, 16) => CU_AD_FORMAT_SIGNED_INT16,
        (channel_kind::SIGNED, 32) => CU_AD_FORMAT_SIGNED_INT32,
        (channel_kind::FLOAT, 16) => CU_AD_FORMAT_HALF,
        (channel_kind::FLOAT, 32) => CU_AD_FORMAT_FLOAT,
        _ => return Err(invalid),
    };
    Ok((format, if channels == 4 { 4 } else { u32::from(channels == 2) + 1 }))
}

/// Returns the kind and the number of bits of the driver's format.
const fn of_format(format: c_uint) -> Option<(c_int, c_int)> {
    Some(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 => (channel_kind::UNSIGNED, 8),
        CU_AD_FORMAT_UNSIGNED_INT16 => (channel_kind::UNSIGNED, 16),
        CU_AD_FORMAT_UNSIGNED_INT32 => (channel_kind::UNSIGNED, 32),
        CU_AD_FORMAT_SIGNED_INT8 => (channel_kind::SIGNED, 8),
        CU_AD_FORMAT_SIGNED_INT16 => (channel_kind::SIGNED, 16),
        CU_AD_FORMAT_SIGNED_INT32 => (channel_kind::SIGNED, 32),
        CU_AD_FORMAT_HALF => (channel_kind::FLOAT, 16),
        CU_AD_FORMAT_FLOAT => (channel_kind::FLOAT, 32),
        _ => return None,
    })
}

/// Returns the runtime's description of an array's elements.
///
/// # Errors
/// The runtime cannot describe the driver's format.
pub(crate) fn channels(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> RtResult<ChannelFormatDesc> {
    let (f, bits) =
        of_format(descriptor.Format).ok_or(RtError(code::INVALID_CHANNEL_DESCRIPTOR))?;
    let channel = |index| if descriptor.NumChannels > index { bits } else { 0 };
    Ok(ChannelFormatDesc { x: channel(0), y: channel(1), z: channel(2), w: channel(3), f })
}

/// Returns the driver's description of an array.
///
/// # Errors
/// The driver returns an error.
pub(crate) fn describe(current: Current, array: CUarray) -> RtResult<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut descriptor = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: the pointer is valid for a write. The driver checks the program's array handle.
    unsafe { current.driver.cuArray3DGetDescriptor_v2(&raw mut descriptor, array) }?;
    Ok(descriptor)
}

fn bytes_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> RtResult<usize> {
    let ChannelFormatDesc { x, y, z, w, .. } = channels(descriptor)?;
    usize::try_from((x + y + z + w) / 8).map_err(|_| RtError::INVALID_VALUE)
}

/// Returns the size of an array's element in bytes.
///
/// # Errors
/// The driver returns an error.
pub(crate) fn element_bytes(current: Current, array: CUarray) -> RtResult<usize> {
    bytes_of(&describe(current, array)?)
}

/// Consecutive bytes of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) pointer: *mut c_void,
    pub(crate) count: usize,
}

/// A rectangle of an array's rows. `x` and `width` are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Splits `bytes` bytes from `(x, y)` on, in rows of `row` bytes, into the rest of a row, whole
/// rows, and the start of a row.
fn pieces(x: usize, y: usize, row: usize, bytes: usize) -> RtResult<Vec<Piece>> {
    if x >= row && bytes > 0 {
        return Err(RtError::INVALID_VALUE);
    }
    let first = if x == 0 { 0 } else { bytes.min(row - x) };
    let (whole, last) = ((bytes - first) / row.max(1), (bytes - first) % row.max(1));
    let next = y + usize::from(first > 0);
    let all = [
        Piece { x, y, width: first, height: 1 },
        Piece { x: 0, y: next, width: row, height: whole },
        Piece { x: 0, y: next + whole, width: last, height: 1 },
    ];
    Ok(all.into_iter().filter(|piece| piece.width > 0 && piece.height > 0).collect())
}

/// Copies memory into consecutive rows of an array if `into`, otherwise those rows into memory.
///
/// # Safety
/// The program may access all bytes of `memory`.
pub(crate) unsafe fn run(
    current: Current,
    position: ArrayPosition,
    memory: Bytes,
    into: bool,
    kind: c_int,
    stream: CUstream,
    mode: Mode,
) -> RtResult {
    let descriptor = describe(current, position.array)?;
    let row = descriptor.Width * bytes_of(&descriptor)?;
    let mut done = 0;
    for piece in pieces(position.x, position.y, row, memory.count)? {
        let array = Rows::Array(ArrayPosition { x: piece.x, y: piece.y, ..position });
        let pointer = memory.pointer.wrapping_byte_add(done);
        let bytes = Rows::Memory { pointer, pitch: piece.width };
        let (to, from) = if into { (array, bytes) } else { (bytes, array) };
        let size = RectSize { width: piece.width, height: piece.height };
        // SAFETY: the caller upholds the contract of this function. The pieces add up to
        // `memory.count`.
        unsafe { rows(current, to, from, size, kind, stream, mode) }?;
        done += piece.width * piece.height;
    }
    Ok(())
}

/// Copies from the rows of one array to the rows of another.
///
/// # Errors
/// The driver returns an error, or a position is outside its array.
pub(crate) fn run_between(
    current: Current,
    to: ArrayPosition,
    from: ArrayPosition,
    bytes: usize,
    kind: c_int,
    stream: CUstream,
) -> RtResult {
    let row =
        |array| describe(current, array).and_then(|found| Ok(found.Width * bytes_of(&found)?));
    let (to_row, from_row) = (row(to.array)?, row(from.array)?);
    let (mut to_at, mut from_at) = (to.y * to_row + to.x, from.y * from_row + from.x);
    if to.x >= to_row || from.x >= from_row {
        return Err(RtError::INVALID_VALUE);
    }
    let mut left = bytes;
    while left > 0 {
        let width = left.min(to_row - to_at % to_row).min(from_row - from_at % from_row);
        let destination = Rows::Array(ArrayPosition { x: to_at % to_row, y: to_at / to_row, ..to });
        let source =
            Rows::Array(ArrayPosition { x: from_at % from_row, y: from_at / from_row, ..from });
        let size = RectSize { width, height: 1 };
        // SAFETY: both ends are arrays, and the driver checks that the rows are within them.
        unsafe { rows(current, destination, source, size, kind, stream, Mode::Queued) }?;
        (to_at, from_at, left) = (to_at + width, from_at + width, left - width);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_go_there_and_back() {
        for (bits, f) in [(8, 0), (16, 0), (32, 0), (8, 1), (16, 1), (32, 1), (16, 2), (32, 2)] {
            for (channels_wanted, desc) in [
                (1, ChannelFormatDesc { x: bits, f, ..Default::default() }),
                (2, ChannelFormatDesc { x: bits, y: bits, f, ..Default::default() }),
                (4, ChannelFormatDesc { x: bits, y: bits, z: bits, w: bits, f }),
            ] {
                let (format, count) = format(&desc).unwrap();
                assert_eq!(count, channels_wanted);
                let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
                    Format: format,
                    NumChannels: count,
                    ..Default::default()
                };
                assert_eq!(channels(&descriptor), Ok(desc));
            }
        }
    }

    #[test]
    fn elements_that_no_array_has_are_refused() {
        for desc in [
            ChannelFormatDesc::default(),
            ChannelFormatDesc { x: 8, y: 16, ..Default::default() },
            ChannelFormatDesc { x: 8, y: 8, z: 8, ..Default::default() },
            ChannelFormatDesc { x: 8, z: 8, ..Default::default() },
            ChannelFormatDesc { x: 8, f: 2, ..Default::default() },
            ChannelFormatDesc { x: 64, f: 1, ..Default::default() },
            ChannelFormatDesc { x: 32, f: 3, ..Default::default() },
        ] {
            assert_eq!(format(&desc), Err(RtError(code::INVALID_CHANNEL_DESCRIPTOR)), "{desc:?}");
        }
    }

    #[test]
    fn a_run_is_the_rest_of_a_row_whole_rows_and_the_start_of_one() {
        let piece = |x, y, width, height| Piece { x, y, width, height };
        assert_eq!(pieces(0, 0, 16, 64), Ok(vec![piece(0, 0, 16, 4)]));
        assert_eq!(pieces(4, 2, 16, 8), Ok(vec![piece(4, 2, 8, 1)]));
        assert_eq!(
            pieces(4, 2, 16, 12 + 32 + 5),
            Ok(vec![piece(4, 2, 12, 1), piece(0, 3, 16, 2), piece(0, 5, 5, 1)])
        );
        assert_eq!(pieces(16, 0, 16, 1), Err(RtError::INVALID_VALUE));
        assert_eq!(pieces(0, 0, 16, 0), Ok(vec![]));
    }
}
