//! Texture and surface objects: each is a descriptor on the device, which the translated code
//! reads.

use std::sync::{Arc, MutexGuard};

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;
use rustc_hash::FxHashMap;

use super::array::{Array, channel_bytes};
use super::block::Block;
use super::context::Context;
use super::device::Device;
use super::stream_list;
use crate::edge::{CuResult, Object, require};

/// Bytes of a descriptor. The translated code uses the same layout.
const DESCRIPTOR_BYTES: usize = 64;

/// Texture or surface. Their descriptors are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextureKind {
    Texture,
    Surface,
}

/// A texture or surface object. Its handle is the address of its descriptor.
struct Texture {
    kind: TextureKind,
    /// Number of the context that owns the object.
    context: u64,
    device: Arc<Device>,
    block: Block,
    resource: CUDA_RESOURCE_DESC,
    texture: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

static TEXTURES: Lock<FxHashMap<u64, Texture>> =
    Lock::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher));

fn textures() -> MutexGuard<'static, FxHashMap<u64, Texture>> {
    TEXTURES.lock()
}

/// The memory that a texture samples.
struct Pixels {
    address: u64,
    pitch: u64,
    size: [u32; 3],
    format: u32,
    channels: u32,
}

fn pixels(resource: &CUDA_RESOURCE_DESC) -> CuResult<Pixels> {
    let narrow = |size: usize| u32::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let linear = &resource.res;
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => {
            let array = Array::of_number(linear.handle)?;
            let of = &array.descriptor;
            Ok(Pixels {
                address: array.address,
                pitch: array.pitch,
                size: [narrow(of.Width)?, narrow(of.Height)?, narrow(of.Depth)?],
                format: of.Format,
                channels: of.NumChannels,
            })
        }
        CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D => {
            let pixel = channel_bytes(linear.format).ok_or(CUDA_ERROR_INVALID_VALUE)?
                * u64::from(linear.numChannels);
            if pixel == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let (size, pitch) = if resource.resType == CU_RESOURCE_TYPE_LINEAR {
                let count = u32::try_from(linear.width as u64 / pixel)
                    .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
                ([count, 0, 0], linear.width as u64)
            } else {
                ([narrow(linear.width)?, narrow(linear.height)?, 0], linear.pitchInBytes as u64)
            };
            let (format, channels) = (linear.format, linear.numChannels);
            Ok(Pixels { address: linear.handle, pitch, size, format, channels })
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Number of the last format of `CUresourceViewFormat` that is not compressed.
const VIEW_FORMATS: u32 = 24;

/// Returns the format of an array and the number of channels of a view's format: for each of eight
/// formats there are one, two and four channels.
fn format_of_view(format: u32) -> Option<(u32, u32)> {
    const FORMATS: [u32; 8] = [
        CU_AD_FORMAT_UNSIGNED_INT8,
        CU_AD_FORMAT_SIGNED_INT8,
        CU_AD_FORMAT_UNSIGNED_INT16,
        CU_AD_FORMAT_SIGNED_INT16,
        CU_AD_FORMAT_UNSIGNED_INT32,
        CU_AD_FORMAT_SIGNED_INT32,
        CU_AD_FORMAT_HALF,
        CU_AD_FORMAT_FLOAT,
    ];
    let index = usize::try_from(format.checked_sub(1)?).ok()?;
    FORMATS.get(index / 3).map(|format| (*format, 1 << (index % 3)))
}

/// Returns what a texture samples through a view, which says "how the data contained in the CUDA
/// array or mipmapped array should be interpreted".
fn viewed(
    pixels: Pixels,
    resource: &CUDA_RESOURCE_DESC,
    view: &CUDA_RESOURCE_VIEW_DESC,
) -> CuResult<Pixels> {
    // "pResViewDesc can only be specified if the type of resource is a CUDA array or a CUDA
    // mipmapped array."
    require(resource.resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE)?;
    // "For non-mipmapped resources, this value has to be zero."
    let levels = [view.firstMipmapLevel, view.lastMipmapLevel];
    require(levels == [0, 0], CUDA_ERROR_INVALID_VALUE)?;
    // Compressed blocks are not decoded.
    require(view.format <= VIEW_FORMATS, CUDA_ERROR_NOT_SUPPORTED)?;
    // "For non block compressed formats, this value has to be equal to that of the original
    // resource."
    let same = |given: usize, own: u32| usize::try_from(own).is_ok_and(|own| given == own);
    let [width, height, depth] = pixels.size;
    let fits = same(view.width, width) && same(view.height, height) && same(view.depth, depth);
    require(fits, CUDA_ERROR_INVALID_VALUE)?;
    let array = Array::of_number(resource.res.handle)?;
    if array.descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) == 0 {
        // "For non-layered resources, this value has to be zero."
        require((view.firstLayer, view.lastLayer) == (0, 0), CUDA_ERROR_INVALID_VALUE)?;
    } else {
        let is_whole = view.firstLayer == 0 && view.lastLayer == depth.saturating_sub(1);
        require(is_whole, CUDA_ERROR_NOT_SUPPORTED)?;
    }
    let Some((format, channels)) = format_of_view(view.format) else { return Ok(pixels) };
    let bytes = |format, channels| channel_bytes(format).map(|one| one * u64::from(channels));
    // A view with pixels of another size would change the width in bytes.
    let is_same_size = bytes(format, channels) == bytes(pixels.format, pixels.channels);
    require(is_same_size, CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(Pixels { format, channels, ..pixels })
}

fn descriptor(pixels: &Pixels, texture: &CUDA_TEXTURE_DESC) -> CuResult<[u8; DESCRIPTOR_BYTES]> {
    let kind = match pixels.format {
        CU_AD_FORMAT_UNSIGNED_INT8 => 0,
        CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 => 2,
        CU_AD_FORMAT_SIGNED_INT16 => 3,
        CU_AD_FORMAT_UNSIGNED_INT32 => 4,
        CU_AD_FORMAT_SIGNED_INT32 => 5,
        CU_AD_FORMAT_HALF => 6,
        CU_AD_FORMAT_FLOAT => 7,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let is_narrow = kind < 4;
    let has = |flag: u32| u32::from(texture.flags & flag != 0);
    // "CU_TRSF_READ_AS_INTEGER, which suppresses the default behavior of having the texture promote
    // integer data to floating point data in the range [0, 1]. Note that texture with 32-bit
    // integer format would not be promoted".
    let normalised = u32::from(is_narrow && has(CU_TRSF_READ_AS_INTEGER) == 0);
    let mut bytes = [0; DESCRIPTOR_BYTES];
    bytes[..8].copy_from_slice(&pixels.address.to_le_bytes());
    bytes[8..16].copy_from_slice(&pixels.pitch.to_le_bytes());
    let words = [
        pixels.size[0],
        pixels.size[1],
        kind,
        pixels.channels,
        texture.addressMode[0],
        texture.addressMode[1],
        texture.filterMode,
        normalised,
        has(CU_TRSF_NORMALIZED_COORDINATES),
        has(CU_TRSF_SRGB),
        pixels.size[2],
        texture.addressMode[2],
    ];
    for (target, word) in bytes[16..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *target = word.to_le_bytes();
    }
    Ok(bytes)
}

pub(crate) fn create(
    context: &Arc<Context>,
    resource: &CUDA_RESOURCE_DESC,
    texture: &CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> CuResult<CUtexObject> {
    context.check()?;
    if context.device.is_native {
        // The driver's own textures do not use our descriptors.
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if texture.filterMode > 1 || texture.addressMode.iter().any(|mode| *mode > 3) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    create_object(context, TextureKind::Texture, resource, texture, view)
}

pub(crate) fn create_surface(
    context: &Arc<Context>,
    resource: &CUDA_RESOURCE_DESC,
) -> CuResult<CUsurfObject> {
    context.check()?;
    if context.device.is_native {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    // "Currently, the only type of resource supported is a CUDA array", one that was "created with
    // CUDA_ARRAY3D_SURFACE_LDST".
    require(resource.resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE)?;
    let array = Array::of_number(resource.res.handle)?;
    require(array.descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST != 0, CUDA_ERROR_INVALID_VALUE)?;
    create_object(context, TextureKind::Surface, resource, &CUDA_TEXTURE_DESC::default(), None)
}

fn create_object(
    context: &Arc<Context>,
    kind: TextureKind,
    resource: &CUDA_RESOURCE_DESC,
    texture: &CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> CuResult<u64> {
    let device = &context.device;
    let mut pixels = pixels(resource)?;
    if let Some(view) = &view {
        pixels = viewed(pixels, resource, view)?;
    }
    let bytes = descriptor(&pixels, texture)?;
    let block = device.allocate_block(DESCRIPTOR_BYTES as u64, context.number())?;
    // Not in a stream of the program, because nobody uses this memory yet.
    context.write_unordered(block.address, &bytes)?;
    let made = Texture {
        kind,
        context: context.number(),
        device: device.clone(),
        block,
        resource: *resource,
        texture: *texture,
        view,
    };
    textures().insert(block.address, made);
    Ok(block.address)
}

/// Implements `cuTexObjectDestroy` and `cuSurfObjectDestroy`.
pub(crate) fn destroy(object: u64, kind: TextureKind) -> CuResult {
    let mut all = textures();
    require(all.get(&object).is_some_and(|it| it.kind == kind), CUDA_ERROR_INVALID_VALUE)?;
    let texture = all.remove(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    drop(all);
    texture.device.release_block(texture.block, stream_list::busy_on(&texture.device))
}

/// Forgets all objects of a context that has ended. The context frees their memory.
pub(crate) fn forget_of(context: u64) {
    textures().retain(|_, texture| texture.context != context);
}

/// Returns the view that a texture object was made with.
pub(crate) fn view_of(object: u64) -> CuResult<Option<CUDA_RESOURCE_VIEW_DESC>> {
    let textures = textures();
    let found = textures.get(&object).filter(|it| it.kind == TextureKind::Texture);
    found.map(|texture| texture.view).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Returns the descriptions that an object was made from.
pub(crate) fn descriptions_of(
    object: u64,
    kind: TextureKind,
) -> CuResult<(CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC)> {
    let textures = textures();
    let texture =
        textures.get(&object).filter(|it| it.kind == kind).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok((texture.resource, texture.texture))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_say_what_the_translated_code_reads() {
        let pixels = Pixels {
            address: 0x1234,
            pitch: 64,
            size: [5, 6, 0],
            format: CU_AD_FORMAT_UNSIGNED_INT8,
            channels: 4,
        };
        let mut texture = CUDA_TEXTURE_DESC {
            addressMode: [1, 3, 0],
            filterMode: 1,
            flags: 2,
            ..Default::default()
        };
        let word =
            |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let bytes = descriptor(&pixels, &texture).unwrap();
        assert_eq!(u64::from_le_bytes(*bytes.first_chunk().unwrap()), 0x1234);
        let expected = [
            (8, 64),
            (16, 5),
            (20, 6),
            (24, 0),
            (28, 4),
            (32, 1),
            (36, 3),
            (40, 1),
            (44, 1),
            (48, 1),
            (52, 0),
        ];
        for (at, value) in expected {
            assert_eq!(word(&bytes, at), value, "at {at}");
        }
        texture.flags = CU_TRSF_READ_AS_INTEGER;
        assert_eq!(word(&descriptor(&pixels, &texture).unwrap(), 44), 0);
        let floats = Pixels { format: CU_AD_FORMAT_FLOAT, ..pixels };
        texture.flags = 0;
        assert_eq!(word(&descriptor(&floats, &texture).unwrap(), 44), 0);
    }
}
