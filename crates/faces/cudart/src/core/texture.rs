//! Texture and surface objects: conversion of the runtime's descriptions to the driver's, and the
//! descriptions that programs can query later.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::LazyLock;

use penstock_cuda_sys::driver::*;
use penstock_cuda_sys::runtime::{
    RESOURCE_DESC_13_BYTES, ResourceDesc, ResourceViewDesc, TextureDesc, VIEW_RESERVED_13,
    resource_type,
};
use penstock_cuda_sys::runtime_codes as code;
use penstock_process::Lock;
use rustc_hash::FxHashMap;

use super::array;
use crate::edge::{RtError, RtResult, major};

const READ_ELEMENTS: c_int = 0;

const FLAG_NO_TRILINEAR_OPTIMIZATION: c_uint = 0x20;
const FLAG_SEAMLESS_CUBEMAP: c_uint = 0x40;

/// The descriptions that a texture was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) resource: ResourceDesc,
    pub(crate) texture: TextureDesc,
    pub(crate) view: Option<ResourceViewDesc>,
}

static TEXTURES: LazyLock<Lock<FxHashMap<u64, Made>>> = LazyLock::new(Lock::default);
static SURFACES: LazyLock<Lock<FxHashMap<u64, ResourceDesc>>> = LazyLock::new(Lock::default);

pub(crate) fn keep(object: u64, made: Made) {
    TEXTURES.lock().insert(object, made);
}

/// Returns the descriptions that a texture was made from.
///
/// # Errors
/// There is no such texture.
pub(crate) fn made(object: u64) -> RtResult<Made> {
    let textures = TEXTURES.lock();
    textures.get(&object).copied().ok_or(RtError::INVALID_VALUE)
}

pub(crate) fn forget(object: u64) {
    TEXTURES.lock().remove(&object);
}

pub(crate) fn keep_surface(object: u64, resource: ResourceDesc) {
    SURFACES.lock().insert(object, resource);
}

/// Returns the description that a surface was made from.
///
/// # Errors
/// There is no such surface.
pub(crate) fn surface(object: u64) -> RtResult<ResourceDesc> {
    let surfaces = SURFACES.lock();
    surfaces.get(&object).copied().ok_or(RtError::INVALID_VALUE)
}

pub(crate) fn forget_surface(object: u64) {
    SURFACES.lock().remove(&object);
}

/// Converts a description of a resource to the driver's form.
///
/// # Errors
/// The kind is invalid, or textures cannot have such elements.
pub(crate) fn resource(desc: &ResourceDesc) -> RtResult<CUDA_RESOURCE_DESC> {
    let memory = desc.memory;
    let mut made = CUDA_RESOURCE_DESC { resType: desc.kind.cast_unsigned(), ..Default::default() };
    made.res.handle = memory.pointer;
    match desc.kind {
        resource_type::ARRAY | resource_type::MIPMAPPED_ARRAY => {}
        resource_type::LINEAR => {
            (made.res.format, made.res.numChannels) = array::format(&memory.desc)?;
            made.res.width = memory.width;
        }
        resource_type::PITCH_2D => {
            (made.res.format, made.res.numChannels) = array::format(&memory.desc)?;
            (made.res.width, made.res.height) = (memory.width, memory.height);
            made.res.pitchInBytes = memory.pitch_in_bytes;
        }
        _ => return Err(RtError::INVALID_VALUE),
    }
    Ok(made)
}

/// Converts a description of a texture to the driver's form.
///
/// # Errors
/// A mode is invalid.
pub(crate) fn texture(desc: &TextureDesc) -> RtResult<CUDA_TEXTURE_DESC> {
    let mode = |mode: c_int, modes: c_int| {
        if (0..modes).contains(&mode) {
            Ok(mode.cast_unsigned())
        } else {
            Err(RtError::INVALID_VALUE)
        }
    };
    let [x, y, z] = desc.address_mode;
    let mut flags = 0;
    for (set, flag) in [
        (mode(desc.read_mode, 2)? == READ_ELEMENTS.cast_unsigned(), CU_TRSF_READ_AS_INTEGER),
        (desc.normalized_coords != 0, CU_TRSF_NORMALIZED_COORDINATES),
        (desc.srgb != 0, CU_TRSF_SRGB),
        (desc.disable_trilinear_optimization != 0, FLAG_NO_TRILINEAR_OPTIMIZATION),
        (desc.seamless_cubemap != 0, FLAG_SEAMLESS_CUBEMAP),
    ] {
        flags |= if set { flag } else { 0 };
    }
    Ok(CUDA_TEXTURE_DESC {
        addressMode: [mode(x, 4)?, mode(y, 4)?, mode(z, 4)?],
        filterMode: mode(desc.filter_mode, 2).map_err(|_| RtError(code::INVALID_FILTER_SETTING))?,
        flags,
        maxAnisotropy: desc.max_anisotropy,
        mipmapFilterMode: mode(desc.mipmap_filter_mode, 2)?,
        mipmapLevelBias: desc.mipmap_level_bias,
        minMipmapLevelClamp: desc.min_mipmap_level_clamp,
        maxMipmapLevelClamp: desc.max_mipmap_level_clamp,
        borderColor: desc.border_color,
        reserved: [0; 12],
    })
}

/// The driver's description of a view: the runtime's, followed by zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) view: ResourceViewDesc,
    pub(crate) reserved: [c_uint; VIEW_RESERVED_13],
}

/// Stores a description in the layout of the version that the program was compiled for.
///
/// # Safety
/// `place` is valid for a write of that layout.
pub(crate) unsafe fn store_resource(place: *mut c_void, resource: ResourceDesc) {
    if major() > 12 {
        // SAFETY: the caller guarantees room for the structure of version 13.
        unsafe { place.cast::<u8>().write_bytes(0, RESOURCE_DESC_13_BYTES) };
    }
    // SAFETY: the caller guarantees the room. Both versions begin with this structure.
    unsafe { place.cast::<ResourceDesc>().write_unaligned(resource) };
}

/// Like [`store_resource`], for a view.
///
/// # Safety
/// `place` is valid for a write of the version's layout.
pub(crate) unsafe fn store_view(place: *mut c_void, view: ResourceViewDesc) {
    if major() > 12 {
        // SAFETY: the caller guarantees room for the structure of version 13.
        unsafe { place.cast::<View>().write_unaligned(View { view, ..Default::default() }) };
    } else {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { place.cast::<ResourceViewDesc>().write_unaligned(view) };
    }
}

#[cfg(test)]
mod tests {
    use penstock_cuda_sys::runtime::{ChannelFormatDesc, ResourceMemory, channel_kind};

    use super::*;

    #[test]
    fn memory_with_a_pitch_goes_over_to_the_driver() {
        let desc = ResourceDesc {
            kind: resource_type::PITCH_2D,
            memory: ResourceMemory {
                pointer: 0x7000,
                desc: ChannelFormatDesc { x: 32, f: channel_kind::FLOAT, ..Default::default() },
                width: 64,
                height: 8,
                pitch_in_bytes: 512,
            },
        };
        let made = resource(&desc).unwrap();
        assert_eq!((made.resType, made.res.handle), (CU_RESOURCE_TYPE_PITCH2D, 0x7000));
        assert_eq!((made.res.format, made.res.numChannels), (CU_AD_FORMAT_FLOAT, 1));
        assert_eq!((made.res.width, made.res.height, made.res.pitchInBytes), (64, 8, 512));
    }

    #[test]
    fn read_modes_and_coordinates_become_flags() {
        let elements = texture(&TextureDesc::default()).unwrap();
        assert_eq!(elements.flags, CU_TRSF_READ_AS_INTEGER);
        let floats = texture(&TextureDesc {
            read_mode: 1,
            normalized_coords: 1,
            srgb: 1,
            ..Default::default()
        })
        .unwrap();
        assert_eq!(floats.flags, CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB);
        let wrong = TextureDesc { filter_mode: 2, ..Default::default() };
        assert_eq!(texture(&wrong), Err(RtError(code::INVALID_FILTER_SETTING)));
        let wrong = TextureDesc { address_mode: [0, 4, 0], ..Default::default() };
        assert_eq!(texture(&wrong), Err(RtError::INVALID_VALUE));
    }
}
