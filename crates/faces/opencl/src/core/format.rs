//! Image formats: which are valid, and the size of a pixel.

#![allow(non_upper_case_globals, reason = "C's names in patterns")]

use penstock_cl_sys::*;

use crate::edge::{ClResult, require};

/// Returns the size of a pixel in bytes.
///
/// # Errors
/// `CL_INVALID_IMAGE_FORMAT_DESCRIPTOR` if order and type do not match.
pub(crate) fn pixel_size(format: &cl_image_format) -> ClResult<usize> {
    let (order, kind) = (format.image_channel_order, format.image_channel_data_type);
    // "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid"
    require(goes_together(order, kind), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    Ok(match kind {
        // "... packed": one number holds all channels.
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        _ => channels(order) * channel_size(kind),
    })
}

/// Returns the number of channels of a pixel.
fn channels(order: cl_channel_order) -> usize {
    match order {
        CL_R | CL_A | CL_Rx | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        _ => 4,
    }
}

/// Returns the size in bytes of a channel that is not packed.
fn channel_size(kind: cl_channel_type) -> usize {
    match kind {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => 1,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2,
        _ => 4,
    }
}

/// Implements the specification's tables "Image Channel Order" and "Image Channel Data Type".
fn goes_together(order: cl_channel_order, kind: cl_channel_type) -> bool {
    let plain = matches!(
        kind,
        CL_SNORM_INT8
            | CL_SNORM_INT16
            | CL_UNORM_INT8
            | CL_UNORM_INT16
            | CL_SIGNED_INT8
            | CL_SIGNED_INT16
            | CL_SIGNED_INT32
            | CL_UNSIGNED_INT8
            | CL_UNSIGNED_INT16
            | CL_UNSIGNED_INT32
            | CL_HALF_FLOAT
            | CL_FLOAT
    );
    match order {
        CL_R | CL_A | CL_RG | CL_RA | CL_Rx | CL_RGx => plain,
        CL_RGBA => plain || kind == CL_UNORM_INT_101010_2,
        CL_INTENSITY | CL_LUMINANCE => matches!(
            kind,
            CL_UNORM_INT8
                | CL_UNORM_INT16
                | CL_SNORM_INT8
                | CL_SNORM_INT16
                | CL_HALF_FLOAT
                | CL_FLOAT
        ),
        CL_DEPTH => matches!(kind, CL_UNORM_INT16 | CL_FLOAT),
        CL_DEPTH_STENCIL => matches!(kind, CL_UNORM_INT24 | CL_FLOAT),
        CL_RGB | CL_RGBx => {
            matches!(kind, CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 | CL_UNORM_INT_101010)
        }
        CL_ARGB | CL_BGRA | CL_ABGR => {
            matches!(kind, CL_UNORM_INT8 | CL_SNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8)
        }
        CL_sRGB | CL_sRGBx | CL_sRGBA | CL_sBGRA => kind == CL_UNORM_INT8,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(order: u32, kind: u32) -> Option<usize> {
        pixel_size(&cl_image_format { image_channel_order: order, image_channel_data_type: kind })
            .ok()
    }

    #[test]
    fn pixels_have_the_size_of_their_channels() {
        assert_eq!(size(CL_R, CL_UNSIGNED_INT8), Some(1));
        assert_eq!(size(CL_RG, CL_HALF_FLOAT), Some(4));
        assert_eq!(size(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(size(CL_BGRA, CL_UNORM_INT8), Some(4));
        assert_eq!(size(CL_sRGBx, CL_UNORM_INT8), Some(4));
        assert_eq!(size(CL_DEPTH, CL_UNORM_INT16), Some(2));
    }

    #[test]
    fn packed_pixels_are_one_number() {
        assert_eq!(size(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(size(CL_RGBA, CL_UNORM_INT_101010_2), Some(4));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        assert_eq!(size(CL_RGB, CL_FLOAT), None);
        assert_eq!(size(CL_LUMINANCE, CL_SIGNED_INT32), None);
        assert_eq!(size(CL_BGRA, CL_FLOAT), None);
        assert_eq!(size(0, CL_FLOAT), None);
        assert_eq!(size(CL_RGBA, 0), None);
    }
}
