use penstock_cl_sys::{
    CL_A, CL_ABGR, CL_ARGB, CL_BGRA, CL_DEPTH, CL_FLOAT, CL_HALF_FLOAT, CL_INTENSITY, CL_LUMINANCE,
    CL_R, CL_RA, CL_RG, CL_RGB, CL_RGBA, CL_SIGNED_INT8, CL_SIGNED_INT16, CL_SIGNED_INT32,
    CL_SNORM_INT8, CL_SNORM_INT16, CL_UNORM_INT_101010, CL_UNORM_INT_101010_2, CL_UNORM_INT8,
    CL_UNORM_INT16, CL_UNORM_INT24, CL_UNORM_SHORT_555, CL_UNORM_SHORT_565, CL_UNSIGNED_INT8,
    CL_UNSIGNED_INT16, CL_UNSIGNED_INT32, CL_sBGRA, CL_sRGB, CL_sRGBA,
};

/// Returns the bytes per element of this channel order and type, if the specification defines them.
/// It leaves formats of some extensions to the driver.
#[allow(non_upper_case_globals, reason = "OpenCL's names")]
pub fn pixel_bytes(order: u32, channel_type: u32) -> Option<u64> {
    // Packed types are one word for all channels.
    let channel = match channel_type {
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => return Some(2),
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 => return Some(4),
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => 1,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4,
        // Only for CL_DEPTH_STENCIL, whose layout is up to the driver.
        CL_UNORM_INT24 => return None,
        _ => return None,
    };
    let channels = match order {
        // Rx, RGx and RGBx are left out: drivers differ in whether the x takes room.
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => 1,
        CL_RG | CL_RA => 2,
        CL_RGB | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBA | CL_sBGRA => 4,
        _ => return None,
    };
    Some(channels * channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_size() {
        assert_eq!(pixel_bytes(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(pixel_bytes(CL_BGRA, CL_UNORM_INT8), Some(4));
        assert_eq!(pixel_bytes(CL_R, CL_HALF_FLOAT), Some(2));
        assert_eq!(pixel_bytes(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(pixel_bytes(CL_RGB, CL_UNORM_INT_101010), Some(4));
        assert_eq!(pixel_bytes(CL_DEPTH, CL_UNORM_INT16), Some(2));
        assert_eq!(pixel_bytes(12345, CL_FLOAT), None);
        assert_eq!(pixel_bytes(CL_RGBA, 0), None);
    }
}
