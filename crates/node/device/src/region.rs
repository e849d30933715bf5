//! Checks of ranges, rectangles and image regions. All numbers may come from a hostile client. A
//! range that passes lies within the object, and the driver accesses exactly the returned size.

use penstock_wire::status::Status;

/// Place of a rectangle in a buffer, as in `clEnqueueReadBufferRect`. Pitches of 0: no gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rect {
    /// Start: `x` in bytes, `y` in rows, `z` in slices.
    pub origin: [u64; 3],
    /// Distance of rows in bytes.
    pub row_pitch: u64,
    /// Distance of slices in bytes.
    pub slice_pitch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) origin: [usize; 3],
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

/// Largest size of an object of this process.
const BYTES_MAX: u64 = isize::MAX as u64;

/// Returns offset and length of a non-empty part of a buffer of `size` bytes.
pub(crate) fn range(size: u64, offset: u64, length: u64) -> Result<(usize, usize), Status> {
    // "CL_INVALID_VALUE if the region being read or written specified by (offset, size) is out of
    // bounds" or size is 0.
    let end = offset.checked_add(length).ok_or(Status::INVALID_VALUE)?;
    if length == 0 || end > size || end > BYTES_MAX {
        return Err(Status::INVALID_VALUE);
    }
    Ok((narrow(offset)?, narrow(length)?))
}

/// Returns width, height and depth, none of which may be 0.
pub(crate) fn extent(region: [u64; 3]) -> Result<[usize; 3], Status> {
    // "CL_INVALID_VALUE if values in region are 0."
    if region.contains(&0) {
        return Err(Status::INVALID_VALUE);
    }
    triple(region)
}

pub(crate) fn triple([x, y, z]: [u64; 3]) -> Result<[usize; 3], Status> {
    Ok([narrow(x)?, narrow(y)?, narrow(z)?])
}

/// Returns the size of a region without gaps, with elements of `unit` bytes.
pub(crate) fn bytes([width, height, depth]: [u64; 3], unit: u64) -> Result<u64, Status> {
    let all = width
        .checked_mul(height)
        .and_then(|n| n.checked_mul(depth))
        .and_then(|n| n.checked_mul(unit));
    all.filter(|&all| all <= BYTES_MAX).ok_or(Status::INVALID_VALUE)
}

/// Checks that a rectangle lies within a buffer of `size` bytes.
pub(crate) fn rect(size: u64, rect: &Rect, region: [u64; 3]) -> Result<Placed, Status> {
    const BAD: Status = Status::INVALID_VALUE;
    extent(region)?;
    let [width, height, depth] = region;
    // "If row_pitch is 0, row_pitch is computed as region[0]." "CL_INVALID_VALUE if row_pitch is
    // not 0 and is less than region[0]."
    let row_pitch = if rect.row_pitch == 0 { width } else { rect.row_pitch };
    let slice_least = height.checked_mul(row_pitch).ok_or(BAD)?;
    // "CL_INVALID_VALUE if slice_pitch is not 0 and is less than region[1] x row_pitch and not a
    // multiple of row_pitch."
    let slice_pitch = if rect.slice_pitch == 0 { slice_least } else { rect.slice_pitch };
    if row_pitch < width || slice_pitch < slice_least || slice_pitch % row_pitch != 0 {
        return Err(BAD);
    }
    let [x, y, z] = rect.origin;
    let last_slice =
        z.checked_add(depth - 1).and_then(|n| n.checked_mul(slice_pitch)).ok_or(BAD)?;
    let last_row = y.checked_add(height - 1).and_then(|n| n.checked_mul(row_pitch)).ok_or(BAD)?;
    let row_end = x.checked_add(width).ok_or(BAD)?;
    let end = last_slice.checked_add(last_row).and_then(|n| n.checked_add(row_end)).ok_or(BAD)?;
    if end > size || end > BYTES_MAX {
        return Err(BAD);
    }
    Ok(Placed {
        origin: triple(rect.origin)?,
        row_pitch: narrow(row_pitch)?,
        slice_pitch: narrow(slice_pitch)?,
    })
}

/// Checks that a region lies within an image; returns its bytes, at `pixel` bytes per element.
pub(crate) fn image(
    whole: [u64; 3],
    pixel: u64,
    origin: [u64; 3],
    region: [u64; 3],
) -> Result<u64, Status> {
    extent(region)?;
    for ((start, length), end) in origin.into_iter().zip(region).zip(whole) {
        // "CL_INVALID_VALUE if the region being read or written specified by origin and region is
        // out of bounds."
        if start.checked_add(length).is_none_or(|reached| reached > end) {
            return Err(Status::INVALID_VALUE);
        }
    }
    bytes(region, pixel)
}

/// Converts a peer's length or offset to `usize`.
pub(crate) fn narrow(value: u64) -> Result<usize, Status> {
    usize::try_from(value).map_err(|_| Status::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within() {
        assert_eq!(range(100, 10, 90), Ok((10, 90)));
        assert!(range(100, 10, 91).is_err());
        assert!(range(100, 10, 0).is_err());
        assert!(range(100, 100, 1).is_err());
        assert!(range(100, u64::MAX, 2).is_err());
        assert!(range(u64::MAX, 0, u64::MAX).is_err());
    }

    #[test]
    fn rectangles_lie_within() {
        let at = |origin, row_pitch, slice_pitch| Rect { origin, row_pitch, slice_pitch };
        // 4 x 3 x 2 bytes in a buffer of 8-byte rows, 4 rows per slice.
        let placed = rect(64, &at([2, 1, 0], 8, 32), [4, 3, 2]).unwrap();
        assert_eq!(placed, Placed { origin: [2, 1, 0], row_pitch: 8, slice_pitch: 32 });
        // The last byte: slice 1, row 3, byte 5 = 32 + 24 + 5.
        assert!(rect(62, &at([2, 1, 0], 8, 32), [4, 3, 2]).is_ok());
        assert!(rect(61, &at([2, 1, 0], 8, 32), [4, 3, 2]).is_err());
        assert!(rect(64, &at([0; 3], 3, 0), [4, 1, 1]).is_err(), "rows overlap");
        assert!(rect(64, &at([0; 3], 8, 12), [4, 1, 1]).is_err(), "no multiple");
        assert!(rect(64, &at([0; 3], 8, 8), [4, 2, 1]).is_err(), "slices overlap");
        assert!(rect(64, &at([0; 3], 0, 0), [4, 0, 1]).is_err());
        assert!(rect(64, &at([0; 3], 0, 0), [8, 4, 2]).is_ok());
    }

    #[test]
    fn hostile_numbers_do_not_wrap() {
        let big = u64::MAX;
        for region in
            [[big, 1, 1], [1, big, 1], [1, 1, big], [1 << 32, 1 << 32, 1], [big, big, big]]
        {
            for origin in [[0; 3], [big; 3], [1, 1, big], [1 << 63; 3]] {
                for pitch in [0, 1, big, 1 << 63] {
                    let wild = Rect { origin, row_pitch: pitch, slice_pitch: pitch };
                    assert!(rect(1 << 20, &wild, region).is_err());
                    assert!(image([1 << 20; 3], 16, origin, region).is_err());
                }
            }
            assert!(bytes(region, 16).is_err() || region == [1, 1, 1]);
        }
    }

    #[test]
    fn image_regions_lie_within() {
        assert_eq!(image([16, 8, 1], 4, [8, 4, 0], [8, 4, 1]), Ok(128));
        assert!(image([16, 8, 1], 4, [9, 4, 0], [8, 4, 1]).is_err());
        assert!(image([16, 8, 1], 4, [0, 0, 1], [1, 1, 1]).is_err());
        assert!(image([16, 8, 1], 4, [0, 0, 0], [1, 1, 0]).is_err());
    }
}
