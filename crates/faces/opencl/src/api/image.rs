//! Images: creation and queries.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cl_sys::*;
use penstock_client::Memory;

use super::buffer::{object_for, triple};
use super::memory::no_properties;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::format::pixel_size;
use crate::core::image::{Content, Description, Image};
use crate::core::memory::{self, Kind, Mem};
use crate::core::queue::Queue;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, cl_entry, functions, require, store,
};

functions! {
    slots {
        clCreateImage, clCreateImageWithProperties, clCreateImage2D, clCreateImage3D,
        clGetSupportedImageFormats, clGetImageInfo,
    }
}

/// Returns the image of a command in `queue`.
pub(super) fn image_for(queue: &Queue, raw: cl_mem) -> ClResult<Ref<Mem>> {
    let mem = object_for(queue, raw)?;
    // "CL_INVALID_MEM_OBJECT if image is not a valid image object."
    mem.image()?;
    // "CL_INVALID_OPERATION if the device associated with command_queue does not support images"
    require(queue.device.number(CL_DEVICE_IMAGE_SUPPORT) != 0, CL_INVALID_OPERATION)?;
    Ok(mem)
}

/// Returns the origin and the size of a region of an image, which must contain the region.
///
/// # Safety
/// Each pointer is `NULL` or points to three numbers.
pub(super) unsafe fn region_of(
    image: &Image,
    origin: *const usize,
    region: *const usize,
) -> ClResult<([usize; 3], [usize; 3])> {
    // SAFETY: guaranteed by the caller.
    let (origin, region) = unsafe { (triple(origin)?, triple(region)?) };
    image.check_region(origin, region)?;
    Ok((origin, region))
}

cl_entry! {
    fn clCreateImage(
        context: cl_context,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        description: *const cl_image_desc,
        host_ptr: *mut c_void,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // SAFETY: the program passes a format, a description, and memory as both require.
        unsafe { create(&context, Vec::new(), flags, format, description, host_ptr) }
    }
}
cl_entry! {
    fn clCreateImageWithProperties(
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        description: *const cl_image_desc,
        host_ptr: *mut c_void,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // SAFETY: the program passes `NULL` or a list that ends with 0.
        let properties = unsafe { no_properties(properties) }?;
        // SAFETY: as for `clCreateImage`.
        unsafe { create(&context, properties, flags, format, description, host_ptr) }
    }
}
cl_entry! {
    fn clCreateImage2D(
        context: cl_context,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        width: usize,
        height: usize,
        row_pitch: usize,
        host_ptr: *mut c_void,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        let it = Description {
            image_type: CL_MEM_OBJECT_IMAGE2D,
            width,
            height,
            depth: 0,
            array_size: 0,
            row_pitch,
            slice_pitch: 0,
        };
        // SAFETY: the program passes a format, and memory for the image.
        unsafe { create_plain(&context, flags, format, it, host_ptr) }
    }
}
cl_entry! {
    fn clCreateImage3D(
        context: cl_context,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        width: usize,
        height: usize,
        depth: usize,
        row_pitch: usize,
        slice_pitch: usize,
        host_ptr: *mut c_void,
    ) -> ClResult<cl_mem> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_IMAGE_SIZE if image_width, image_height are 0 or if image_depth <= 1"
        require(depth > 1, CL_INVALID_IMAGE_SIZE)?;
        let image_type = CL_MEM_OBJECT_IMAGE3D;
        let it = Description { image_type, width, height, depth, array_size: 0, row_pitch, slice_pitch };
        // SAFETY: the program passes a format, and memory for the image.
        unsafe { create_plain(&context, flags, format, it, host_ptr) }
    }
}

/// Creates an image with a function of OpenCL 1.0.
///
/// # Safety
/// `format` is `NULL` or points to a format; `host_ptr` is `NULL` or points to as many bytes as the
/// description says.
unsafe fn create_plain(
    context: &Ref<Context>,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    description: Description,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    // "CL_INVALID_IMAGE_SIZE if image_width or image_height are 0"
    require(description.width > 0 && description.height > 0, CL_INVALID_IMAGE_SIZE)?;
    // SAFETY: guaranteed by the caller.
    let format = unsafe { read_format(format) }?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_new(context, Vec::new(), memory::check_flags(flags)?, format, description, host_ptr)
    }
}

/// Creates an image with a function of OpenCL 1.2 or later.
///
/// # Safety
/// As for [`create_plain`]; `description` is `NULL` or points to a description.
unsafe fn create(
    context: &Ref<Context>,
    properties: Vec<cl_mem_properties>,
    flags: cl_mem_flags,
    format: *const cl_image_format,
    description: *const cl_image_desc,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    // SAFETY: guaranteed by the caller.
    let format = unsafe { read_format(format) }?;
    // "CL_INVALID_IMAGE_DESCRIPTOR if values specified in image_desc are not valid or if image_desc
    // is NULL."
    require(!description.is_null(), CL_INVALID_IMAGE_DESCRIPTOR)?;
    // SAFETY: guaranteed by the caller.
    let it = unsafe { description.read_unaligned() };
    // "num_mip_levels and num_samples must be 0."
    require(it.num_mip_levels == 0 && it.num_samples == 0, CL_INVALID_IMAGE_DESCRIPTOR)?;
    let description = Description {
        image_type: it.image_type,
        width: it.image_width,
        height: it.image_height,
        depth: it.image_depth,
        array_size: it.image_array_size,
        row_pitch: it.image_row_pitch,
        slice_pitch: it.image_slice_pitch,
    };
    // SAFETY: both members of the union are handles of the same size.
    let object = unsafe { it.__bindgen_anon_1.mem_object };
    if object.is_null() {
        // "mem_object ... must be a buffer" for CL_MEM_OBJECT_IMAGE1D_BUFFER.
        require(it.image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_INVALID_IMAGE_DESCRIPTOR)?;
        // SAFETY: guaranteed by the caller.
        return unsafe {
            create_new(
                context,
                properties,
                memory::check_flags(flags)?,
                format,
                description,
                host_ptr,
            )
        };
    }
    // "CL_INVALID_IMAGE_DESCRIPTOR if values specified in image_desc are not valid"
    let object = Mem::borrow(object).map_err(|_| ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
    require(Arc::ptr_eq(&object.context, context), CL_INVALID_CONTEXT)?;
    // "CL_INVALID_HOST_PTR ...": a view has no memory of its own.
    require(host_ptr.is_null(), CL_INVALID_HOST_PTR)?;
    create_view(&object, properties, flags, format, description)
}

/// Reads a format.
///
/// # Safety
/// `format` is `NULL` or points to a format.
unsafe fn read_format(format: *const cl_image_format) -> ClResult<cl_image_format> {
    // "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid or if
    // image_format is NULL."
    require(!format.is_null(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { format.read_unaligned() })
}

/// Creates an image that is no view.
///
/// # Safety
/// `host_ptr` is `NULL` or points to as many bytes as the description says. They stay valid if the
/// flags require it.
unsafe fn create_new(
    context: &Ref<Context>,
    properties: Vec<cl_mem_properties>,
    flags: cl_mem_flags,
    format: cl_image_format,
    description: Description,
    host_ptr: *mut c_void,
) -> ClResult<cl_mem> {
    let pixel = pixel_size(&format)?;
    memory::check_host_ptr(flags, !host_ptr.is_null())?;
    let content = if host_ptr.is_null() { Content::None } else { Content::Host };
    let image = Image::new(description, format, pixel, content)?;
    check_supported(context, flags, &image)?;
    let shape = image.shape(false);
    let pool = if host_ptr.is_null() {
        Memory::image(&context.pool, memory::pool_flags(flags), shape, None, None)?
    } else {
        // SAFETY: guaranteed by the caller.
        let pixels = unsafe { tight(&image, host_ptr.cast()) };
        Memory::image(&context.pool, memory::pool_flags(flags), shape, None, Some(&pixels))?
    };
    let size = image.bytes();
    let mut mem = Mem::new(pool, context.clone(), Kind::Image(image), flags, size);
    mem.properties = properties;
    mem.host_ptr = if flags & CL_MEM_USE_HOST_PTR == 0 { 0 } else { host_ptr.expose_provenance() };
    Ok(Handle::create(&**context, mem).raw())
}

/// Returns all pixels of the program's memory without gaps.
///
/// # Safety
/// `host_ptr` points to an image with the pitches of `image`.
unsafe fn tight(image: &Image, host_ptr: *const u8) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(image.bytes());
    for (start, length) in image.host.pieces(image.host_region(image.extent)) {
        // SAFETY: the piece lies in the image.
        pixels
            .extend_from_slice(unsafe { std::slice::from_raw_parts(host_ptr.add(start), length) });
    }
    pixels
}

/// Creates an image from a buffer or another image.
fn create_view(
    object: &Ref<Mem>,
    properties: Vec<cl_mem_properties>,
    flags: cl_mem_flags,
    format: cl_image_format,
    description: Description,
) -> ClResult<cl_mem> {
    let flags = memory::inherit_flags(flags, object.flags)?;
    let pixel = pixel_size(&format)?;
    let invalid = CL_INVALID_IMAGE_DESCRIPTOR;
    let mut image = Image::new(description, format, pixel, Content::Object)?;
    match &object.kind {
        // "mem_object may refer to a valid buffer object ... if image_type is
        // CL_MEM_OBJECT_IMAGE1D_BUFFER or CL_MEM_OBJECT_IMAGE2D."
        Kind::Buffer => {
            require(
                matches!(image.image_type, CL_MEM_OBJECT_IMAGE1D_BUFFER | CL_MEM_OBJECT_IMAGE2D),
                invalid,
            )?;
            // "The image data ... is taken from buffer": it must lie inside the buffer.
            let end = image.host.end(image.host_region(image.extent));
            require(end.is_some_and(|end| end <= object.size), invalid)?;
            if image.image_type == CL_MEM_OBJECT_IMAGE2D {
                // "CL_INVALID_OPERATION if no devices in context support creating a 2D image from a
                // buffer".
                let supports =
                    |device: &Ref<Device>| device.number(CL_DEVICE_IMAGE_PITCH_ALIGNMENT) != 0;
                require(object.context.devices.iter().any(supports), CL_INVALID_OPERATION)?;
                check_alignment(&object.context, object, &image)?;
            }
        }
        // "... or a valid image object if image_type is CL_MEM_OBJECT_IMAGE2D", with the same size
        // and a compatible format.
        Kind::Image(base) => {
            require(
                image.image_type == CL_MEM_OBJECT_IMAGE2D
                    && base.image_type == CL_MEM_OBJECT_IMAGE2D,
                invalid,
            )?;
            require(image.extent == base.extent, invalid)?;
            require(pixel == base.pixel, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
            image.host = base.host;
        }
        Kind::Pipe { .. } | Kind::Heap(_) => return Err(ClError(invalid)),
    }
    check_supported(&object.context, flags, &image)?;
    let (size, shape) = (image.bytes(), image.shape(true));
    let pool = Memory::image(
        &object.context.pool,
        memory::pool_flags(flags),
        shape,
        Some(object.pool.clone()),
        None,
    )?;
    let mut mem = Mem::new(pool, object.context.clone(), Kind::Image(image), flags, size);
    mem.properties = properties;
    mem.host_ptr = object.host_ptr;
    mem.parent = Some(object.clone());
    Ok(Handle::create(&**object, mem).raw())
}

/// Checks a two-dimensional image that is made from a buffer.
fn check_alignment(context: &Context, buffer: &Mem, image: &Image) -> ClResult {
    // "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if a 2D image is created from a buffer and the row pitch
    // and base address alignment does not follow the rules described for creating a 2D image from a
    // buffer": multiples of CL_DEVICE_IMAGE_PITCH_ALIGNMENT and
    // CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, in pixels.
    let fits = |device: &Ref<Device>| {
        let multiple = |bytes: usize, name| {
            let unit = device.number(name).saturating_mul(image.pixel as u64);
            unit == 0 || (bytes as u64).is_multiple_of(unit)
        };
        multiple(image.host.row_pitch, CL_DEVICE_IMAGE_PITCH_ALIGNMENT)
            && multiple(buffer.origin, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT)
    };
    require(context.devices.iter().any(fits), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
}

/// Checks that devices support such an image.
fn check_supported(context: &Context, flags: cl_mem_flags, image: &Image) -> ClResult {
    // "CL_INVALID_OPERATION if there are no devices in context that support images"
    let with_images =
        context.devices.iter().filter(|device| device.number(CL_DEVICE_IMAGE_SUPPORT) != 0);
    require(with_images.clone().next().is_some(), CL_INVALID_OPERATION)?;
    // "CL_INVALID_IMAGE_SIZE if image dimensions specified in image_desc exceed the maximum image
    // dimensions described in the Device Queries table for all devices in context."
    let mut with_images = with_images;
    require(with_images.any(|device| fits(device, image)), CL_INVALID_IMAGE_SIZE)?;
    // "CL_IMAGE_FORMAT_NOT_SUPPORTED if there are no devices in context that support image_format."
    let formats = context.image_formats.formats(
        &context.pool,
        memory::pool_flags(flags),
        image.image_type,
    )?;
    let same = |it: &cl_image_format| {
        it.image_channel_order == image.format.image_channel_order
            && it.image_channel_data_type == image.format.image_channel_data_type
    };
    require(formats.iter().any(same), CL_IMAGE_FORMAT_NOT_SUPPORTED)
}

fn fits(device: &Device, image: &Image) -> bool {
    let most = |name| usize::try_from(device.number(name)).unwrap_or(usize::MAX);
    let limits: [usize; 3] = match image.image_type {
        CL_MEM_OBJECT_IMAGE1D_BUFFER => [most(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE), 1, 1],
        CL_MEM_OBJECT_IMAGE1D => [most(CL_DEVICE_IMAGE2D_MAX_WIDTH), 1, 1],
        CL_MEM_OBJECT_IMAGE1D_ARRAY => {
            [most(CL_DEVICE_IMAGE2D_MAX_WIDTH), most(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE), 1]
        }
        CL_MEM_OBJECT_IMAGE2D => {
            [most(CL_DEVICE_IMAGE2D_MAX_WIDTH), most(CL_DEVICE_IMAGE2D_MAX_HEIGHT), 1]
        }
        CL_MEM_OBJECT_IMAGE2D_ARRAY => {
            let array = most(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
            [most(CL_DEVICE_IMAGE2D_MAX_WIDTH), most(CL_DEVICE_IMAGE2D_MAX_HEIGHT), array]
        }
        _ => {
            [CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_HEIGHT, CL_DEVICE_IMAGE3D_MAX_DEPTH]
                .map(most)
        }
    };
    image.extent.iter().zip(limits).all(|(extent, limit)| *extent <= limit)
}

cl_entry! {
    fn clGetSupportedImageFormats(
        context: cl_context,
        flags: cl_mem_flags,
        image_type: cl_mem_object_type,
        room: cl_uint,
        formats: *mut cl_image_format,
        count: *mut cl_uint,
    ) -> ClResult<()> {
        let context = Context::borrow(context)?;
        // "CL_INVALID_VALUE if flags or image_type are not valid, or if num_entries is 0 and
        // image_formats is not NULL."
        let flags = memory::check_flags(flags)?;
        let is_image = matches!(
            image_type,
            CL_MEM_OBJECT_IMAGE1D
                | CL_MEM_OBJECT_IMAGE1D_BUFFER
                | CL_MEM_OBJECT_IMAGE1D_ARRAY
                | CL_MEM_OBJECT_IMAGE2D
                | CL_MEM_OBJECT_IMAGE2D_ARRAY
                | CL_MEM_OBJECT_IMAGE3D
        );
        require(is_image && (room > 0 || formats.is_null()), CL_INVALID_VALUE)?;
        let supports = context.devices.iter().any(|device| device.number(CL_DEVICE_IMAGE_SUPPORT) != 0);
        let known = if supports {
            context.image_formats.formats(&context.pool, memory::pool_flags(flags), image_type)?
        } else {
            Arc::default()
        };
        if !formats.is_null() {
            for (index, format) in known.iter().take(room as usize).enumerate() {
                // SAFETY: "image_formats ... a pointer to a memory location" with room for
                // `num_entries` formats.
                unsafe { formats.add(index).write_unaligned(*format) };
            }
        }
        // SAFETY: the program passes `NULL` or a place for a number.
        unsafe { store(count, cl_uint::try_from(known.len()).unwrap_or(cl_uint::MAX)) };
        Ok(())
    }
    fn clGetImageInfo(
        image: cl_mem,
        name: cl_image_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let mem = Mem::borrow(image)?;
        let image = mem.image()?;
        // SAFETY: the program passes `NULL` or places of sufficient size.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_IMAGE_FORMAT => answer.value(image.format),
            CL_IMAGE_ELEMENT_SIZE => answer.value(image.pixel),
            CL_IMAGE_ROW_PITCH => answer.value(image.row_pitch()),
            CL_IMAGE_SLICE_PITCH => answer.value(image.slice_pitch()),
            CL_IMAGE_WIDTH => answer.value(image.description.width),
            CL_IMAGE_HEIGHT => answer.value(image.description.height),
            CL_IMAGE_DEPTH => answer.value(image.description.depth),
            CL_IMAGE_ARRAY_SIZE => answer.value(image.description.array_size),
            CL_IMAGE_BUFFER => {
                let buffer = mem.parent.as_ref().filter(|parent| matches!(parent.kind, Kind::Buffer));
                answer.value(buffer.map_or(std::ptr::null_mut(), |buffer| buffer.raw()))
            }
            CL_IMAGE_NUM_MIP_LEVELS | CL_IMAGE_NUM_SAMPLES => answer.value::<cl_uint>(0),
            // "CL_INVALID_VALUE if param_name is not valid"
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
}
