//! Images: shapes, pitches and regions.

use std::sync::Arc;

use penstock_cl_sys::*;
use penstock_client::ImageShape;
use penstock_process::Lock;
use penstock_wire::describe::ImageDescription;

use super::format::pixel_size;
use super::rect::Layout;
use crate::edge::{ClError, ClResult, require};

/// `cl_image_desc` without the object that the image is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub(crate) image_type: cl_mem_object_type,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) array_size: usize,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

/// Properties of a memory object that is an image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) image_type: cl_mem_object_type,
    pub(crate) format: cl_image_format,
    /// Size of a pixel in bytes.
    pub(crate) pixel: usize,
    /// The program's description, with 0 for dimensions that the type does not have.
    pub(crate) description: Description,
    /// Width, height and depth in the order of origins and regions. The array size takes the place
    /// after the last dimension of the type; missing dimensions are 1.
    pub(crate) extent: [usize; 3],
    /// Layout in host memory when the image is mapped.
    pub(crate) host: Layout,
}

/// Source of an image's bytes, which decides what its pitches may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// No source: pitches must be 0.
    None,
    /// Memory of the program.
    Host,
    /// Content of another memory object.
    Object,
}

impl Image {
    /// Makes an image of a valid description.
    pub(crate) fn new(
        description: Description,
        format: cl_image_format,
        pixel: usize,
        content: Content,
    ) -> ClResult<Self> {
        let mut description = description;
        let extent = extent(&mut description)?;
        let given = content != Content::None;
        // "image_row_pitch ... must be 0 if host_ptr is NULL", and so must image_slice_pitch.
        require(
            given || description.row_pitch == 0 && description.slice_pitch == 0,
            CL_INVALID_IMAGE_DESCRIPTOR,
        )?;
        let row = extent[0].checked_mul(pixel).ok_or(ClError(CL_INVALID_IMAGE_SIZE))?;
        // "If image_row_pitch is not 0, it must be a multiple of the image element size in bytes."
        require(description.row_pitch.is_multiple_of(pixel), CL_INVALID_IMAGE_DESCRIPTOR)?;
        // An image without slices ignores the slice pitch; programs leave any number there.
        let slice_pitch =
            if has_slices(description.image_type) { description.slice_pitch } else { 0 };
        let host =
            host_layout(description.image_type, extent, pixel, description.row_pitch, slice_pitch)
                .map_err(|_| ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        // "If image_slice_pitch is not 0, it must be a multiple of the image_row_pitch."
        let row_pitch = if description.row_pitch == 0 { row } else { description.row_pitch };
        require(slice_pitch % row_pitch == 0, CL_INVALID_IMAGE_DESCRIPTOR)?;
        let bytes = extent.iter().try_fold(pixel, |bytes, n| bytes.checked_mul(*n));
        require(bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()), CL_INVALID_IMAGE_SIZE)?;
        Ok(Self { image_type: description.image_type, format, pixel, description, extent, host })
    }

    /// Returns the size of all pixels in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.extent.iter().product::<usize>() * self.pixel
    }

    /// Returns the shape for the pool. `from_object`: the image is a view, so its pitches matter.
    pub(crate) fn shape(&self, from_object: bool) -> ImageShape {
        let it = &self.description;
        let pitch = |pitch: usize| if from_object { pitch as u64 } else { 0 };
        let description = ImageDescription {
            channel_order: self.format.image_channel_order,
            channel_type: self.format.image_channel_data_type,
            image_type: it.image_type,
            width: it.width as u64,
            height: it.height as u64,
            depth: it.depth as u64,
            array_size: it.array_size as u64,
            row_pitch: pitch(it.row_pitch),
            slice_pitch: pitch(it.slice_pitch),
            mip_levels: 0,
            samples: 0,
        };
        ImageShape {
            description,
            pixel_size: self.pixel as u64,
            extent: self.extent.map(|n| n as u64),
        }
    }

    /// Checks a region of the image. Because dimensions that the type lacks have an extent of 1,
    /// this covers the rules for all types.
    pub(crate) fn check_region(&self, origin: [usize; 3], region: [usize; 3]) -> ClResult {
        for ((origin, region), extent) in origin.iter().zip(region).zip(self.extent) {
            // "CL_INVALID_VALUE if values in origin and region do not follow rules described in the
            // argument description", "if the region ... specified by origin and region is out of
            // bounds"
            let end = origin.checked_add(region).ok_or(ClError(CL_INVALID_VALUE))?;
            require(region > 0 && end <= extent, CL_INVALID_VALUE)?;
        }
        Ok(())
    }

    /// Returns a region with its width in bytes.
    pub(crate) fn host_region(&self, region: [usize; 3]) -> [usize; 3] {
        [region[0] * self.pixel, region[1], region[2]]
    }

    /// Returns the offset of `origin` in host memory in bytes.
    pub(crate) fn host_offset(&self, origin: [usize; 3]) -> usize {
        origin[2] * self.host.slice_pitch + origin[1] * self.host.row_pitch + origin[0] * self.pixel
    }

    /// Returns `CL_IMAGE_ROW_PITCH`, which is also that of a mapped region.
    pub(crate) fn row_pitch(&self) -> usize {
        match self.image_type {
            // The rows of its host layout are whole one-dimensional images.
            CL_MEM_OBJECT_IMAGE1D_ARRAY if self.description.row_pitch != 0 => {
                self.description.row_pitch
            }
            CL_MEM_OBJECT_IMAGE1D_ARRAY => self.extent[0] * self.pixel,
            _ => self.host.row_pitch,
        }
    }

    /// Returns `CL_IMAGE_SLICE_PITCH`, which is also that of a mapped region. "For a 1D image, 1D
    /// image buffer and 2D image object return 0."
    pub(crate) fn slice_pitch(&self) -> usize {
        match self.image_type {
            CL_MEM_OBJECT_IMAGE1D_ARRAY => self.host.row_pitch,
            CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY => self.host.slice_pitch,
            _ => 0,
        }
    }
}

/// Returns whether images of this type consist of several images.
pub(crate) const fn has_slices(image_type: cl_mem_object_type) -> bool {
    matches!(
        image_type,
        CL_MEM_OBJECT_IMAGE3D | CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE1D_ARRAY
    )
}

/// Returns width, height and depth. Sets dimensions that the type does not have to 0.
fn extent(it: &mut Description) -> ClResult<[usize; 3]> {
    let (height, depth, array) = (it.height, it.depth, it.array_size);
    (it.height, it.depth, it.array_size) = (0, 0, 0);
    let extent = match it.image_type {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => [it.width, 1, 1],
        CL_MEM_OBJECT_IMAGE1D_ARRAY => {
            it.array_size = array;
            [it.width, array, 1]
        }
        CL_MEM_OBJECT_IMAGE2D => {
            it.height = height;
            [it.width, height, 1]
        }
        CL_MEM_OBJECT_IMAGE2D_ARRAY => {
            (it.height, it.array_size) = (height, array);
            [it.width, height, array]
        }
        CL_MEM_OBJECT_IMAGE3D => {
            (it.height, it.depth) = (height, depth);
            [it.width, height, depth]
        }
        _ => return Err(ClError(CL_INVALID_IMAGE_DESCRIPTOR)),
    };
    // "image_width is the width of the image in pixels ... must be a value >= 1"; the others
    // likewise.
    require(extent.iter().all(|n| *n > 0), CL_INVALID_IMAGE_DESCRIPTOR)?;
    Ok(extent)
}

/// Returns the layout of an image region in host memory for the pitches of a transfer; a pitch of 0
/// means no gaps. The slices of an array of one-dimensional images are the rows of the layout.
pub(crate) fn host_layout(
    image_type: cl_mem_object_type,
    region: [usize; 3],
    pixel: usize,
    row_pitch: usize,
    slice_pitch: usize,
) -> ClResult<Layout> {
    let invalid = ClError(CL_INVALID_VALUE);
    let least_row = region[0].checked_mul(pixel).ok_or(invalid)?;
    // "If row_pitch is set to 0, the appropriate row pitch is calculated based on the size of each
    // element in bytes multiplied by width."
    let row = if row_pitch == 0 { least_row } else { row_pitch };
    // "row_pitch ... must be greater than or equal to the element size in bytes x width"
    require(row >= least_row, CL_INVALID_VALUE)?;
    // "This must be 0 if image is a 1D or 2D image."
    require(slice_pitch == 0 || has_slices(image_type), CL_INVALID_VALUE)?;
    if image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY {
        let slice = if slice_pitch == 0 { row } else { slice_pitch };
        require(slice >= row, CL_INVALID_VALUE)?;
        return Ok(Layout {
            start: 0,
            row_pitch: slice,
            slice_pitch: slice.checked_mul(region[1]).ok_or(invalid)?,
        });
    }
    let least_slice = row.checked_mul(region[1]).ok_or(invalid)?;
    let slice = if slice_pitch == 0 { least_slice } else { slice_pitch };
    // "slice_pitch ... must be greater than or equal to row_pitch x height."
    require(slice >= least_slice, CL_INVALID_VALUE)?;
    require(slice.checked_mul(region[2]).is_some(), CL_INVALID_VALUE)?;
    Ok(Layout { start: 0, row_pitch: row, slice_pitch: slice })
}

/// Formats that a context supports, for flags and a type.
type Formats = Arc<[cl_image_format]>;

/// Cache of the drivers' answers about image formats, which do not change.
#[derive(Debug, Default)]
pub(crate) struct FormatCache(Lock<Vec<((u64, cl_mem_object_type), Formats)>>);

impl FormatCache {
    /// Returns the formats that all devices of the context support.
    pub(crate) fn formats(
        &self,
        context: &penstock_client::Context,
        flags: u64,
        image_type: cl_mem_object_type,
    ) -> ClResult<Formats> {
        let key = (flags, image_type);
        let known = |cache: &Vec<_>| {
            cache
                .iter()
                .find(|(known, _)| *known == key)
                .map(|(_, formats): &(_, Formats)| formats.clone())
        };
        if let Some(formats) = known(&self.0.lock()) {
            return Ok(formats);
        }
        // The lock is not held, because this call waits.
        let formats: Formats = context
            .image_formats(flags, image_type)?
            .into_iter()
            .map(|(order, kind)| cl_image_format {
                image_channel_order: order,
                image_channel_data_type: kind,
            })
            // Only a driver can move pixels of its own formats.
            .filter(|format| pixel_size(format).is_ok())
            .collect();
        self.0.lock().push((key, formats.clone()));
        Ok(formats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: cl_image_format =
        cl_image_format { image_channel_order: CL_RGBA, image_channel_data_type: CL_UNSIGNED_INT8 };

    fn describe(image_type: u32, row_pitch: usize, slice_pitch: usize) -> Description {
        Description {
            image_type,
            width: 10,
            height: 5,
            depth: 3,
            array_size: 2,
            row_pitch,
            slice_pitch,
        }
    }

    fn image(
        image_type: u32,
        row_pitch: usize,
        slice_pitch: usize,
        content: Content,
    ) -> ClResult<Image> {
        Image::new(describe(image_type, row_pitch, slice_pitch), FORMAT, 4, content)
    }

    #[test]
    fn each_type_has_its_dimensions() {
        for (image_type, extent, pitches) in [
            (CL_MEM_OBJECT_IMAGE1D, [10, 1, 1], (40, 0)),
            (CL_MEM_OBJECT_IMAGE1D_ARRAY, [10, 2, 1], (40, 40)),
            (CL_MEM_OBJECT_IMAGE2D, [10, 5, 1], (40, 0)),
            (CL_MEM_OBJECT_IMAGE2D_ARRAY, [10, 5, 2], (40, 200)),
            (CL_MEM_OBJECT_IMAGE3D, [10, 5, 3], (40, 200)),
        ] {
            let image = image(image_type, 0, 0, Content::None).unwrap();
            assert_eq!(image.extent, extent);
            assert_eq!((image.row_pitch(), image.slice_pitch()), pitches, "{image_type:#x}");
            assert_eq!(image.bytes(), extent.iter().product::<usize>() * 4);
        }
    }

    #[test]
    fn pitches_need_content_and_room() {
        let refused = Some(ClError(CL_INVALID_IMAGE_DESCRIPTOR));
        assert_eq!(image(CL_MEM_OBJECT_IMAGE2D, 40, 0, Content::None).err(), refused);
        assert_eq!(image(CL_MEM_OBJECT_IMAGE2D, 36, 0, Content::Host).err(), refused);
        assert_eq!(image(CL_MEM_OBJECT_IMAGE2D, 42, 0, Content::Host).err(), refused);
        assert_eq!(image(CL_MEM_OBJECT_IMAGE3D, 44, 200, Content::Host).err(), refused);
        let image = image(CL_MEM_OBJECT_IMAGE3D, 44, 264, Content::Host).unwrap();
        assert_eq!((image.row_pitch(), image.slice_pitch()), (44, 264));
        assert_eq!(image.host_offset([1, 2, 1]), 264 + 88 + 4);
    }

    #[test]
    fn regions_stay_inside() {
        let image = image(CL_MEM_OBJECT_IMAGE2D, 0, 0, Content::None).unwrap();
        assert!(image.check_region([0; 3], [10, 5, 1]).is_ok());
        assert!(image.check_region([9, 4, 0], [1, 1, 1]).is_ok());
        for (origin, region) in [
            ([0, 0, 1], [1, 1, 1]),
            ([0; 3], [1, 1, 2]),
            ([0; 3], [0, 1, 1]),
            ([9, 0, 0], [2, 1, 1]),
            ([usize::MAX, 0, 0], [2, 1, 1]),
        ] {
            assert_eq!(image.check_region(origin, region), Err(ClError(CL_INVALID_VALUE)));
        }
    }

    #[test]
    fn slices_of_an_array_of_rows_are_rows() {
        let layout = host_layout(CL_MEM_OBJECT_IMAGE1D_ARRAY, [10, 2, 1], 4, 48, 64).unwrap();
        assert_eq!(layout.row_pitch, 64);
        assert!(host_layout(CL_MEM_OBJECT_IMAGE2D, [10, 5, 1], 4, 0, 200).is_err());
    }
}
