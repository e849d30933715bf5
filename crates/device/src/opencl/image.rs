use penstock_cl_sys::{
    CL_IMAGE_ELEMENT_SIZE, CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY,
    CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
    CL_MEM_OBJECT_IMAGE3D, CL_TRUE, cl_image_desc, cl_image_format,
};
use penstock_wire::describe::ImageDescription;
use penstock_wire::status::Status;

use super::account::Share;
use super::api::{self, function};
use super::context::Context;
use super::format::pixel_bytes;
use super::memory::{Kind, Mem, OwnedMem, keep_until_deleted};
use super::region;

const INVALID_IMAGE_DESCRIPTOR: Status = Status(penstock_cl_sys::CL_INVALID_IMAGE_DESCRIPTOR);
const INVALID_IMAGE_FORMAT: Status = Status(penstock_cl_sys::CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
const INVALID_IMAGE_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_IMAGE_SIZE);

/// Shape that regions of an image are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Region of the whole image: elements, rows (or layers of a 1D array), slices (or layers).
    pub(super) whole: [u64; 3],
    /// Number of bytes per element.
    pub(super) pixel: u64,
}

impl Mem {
    /// `clCreateImage`, from `parent` if there is one. Without a parent, the image is all zeros.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_IMAGE_DESCRIPTOR` for mip-maps, multi-sampling, or an image
    /// that does not fit its parent.
    pub fn image(
        context: &Context,
        flags: u64,
        description: &ImageDescription,
        parent: Option<&Self>,
    ) -> Result<Self, Status> {
        // No known device offers either, and regions of mip levels would need other checks.
        if description.mip_levels > 1 || description.samples > 1 {
            return Err(INVALID_IMAGE_DESCRIPTOR);
        }
        let whole = whole(description)?;
        let known = pixel_bytes(description.channel_order, description.channel_type);
        if let Some(parent) = parent {
            check_parent(context, description, whole, known, parent)?;
        } else if description.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER {
            return Err(INVALID_IMAGE_DESCRIPTOR);
        }
        // Drivers check each dimension, but not all of them the product.
        let least = region::bytes(whole, known.unwrap_or(1)).map_err(|_| INVALID_IMAGE_SIZE)?;
        if context.devices().iter().all(|device| least > device.limits().allocation) {
            return Err(INVALID_IMAGE_SIZE);
        }
        // An image with a parent uses the parent's memory.
        let share = if parent.is_none() { Some(Share::take(least)?) } else { None };
        let raw = create(context, flags, description, parent)?;
        if let Some(share) = share {
            keep_until_deleted(&raw, share)?;
        }
        // The driver reads and writes by its own element size, so the checks must use the same.
        let pixel = element_size(&raw)?;
        if pixel == 0 || known.is_some_and(|known| known != pixel) {
            return Err(INVALID_IMAGE_FORMAT);
        }
        let size = region::bytes(whole, pixel).map_err(|_| INVALID_IMAGE_SIZE)?;
        let mem = Self::of_image(raw, context, Shape { whole, pixel }, size, parent);
        if parent.is_none() {
            mem.clear_image()?;
        }
        Ok(mem)
    }

    /// Returns the region of the whole image.
    pub fn whole_region(&self) -> Option<[u64; 3]> {
        self.shape().ok().map(|shape| shape.whole)
    }

    /// Returns the size in bytes of a region without gaps.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` if this is no image; `CL_INVALID_VALUE` if the region is out of
    /// bounds.
    pub fn region_bytes(&self, origin: [u64; 3], region: [u64; 3]) -> Result<u64, Status> {
        let shape = self.shape()?;
        region::image(shape.whole, shape.pixel, origin, region)
    }

    /// Sets part of an image from rows and slices without gaps. Blocks until the content is set.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds or has another size
    /// than `bytes`.
    pub fn init_image(
        &self,
        origin: [u64; 3],
        region: [u64; 3],
        bytes: &[u8],
    ) -> Result<(), Status> {
        if self.region_bytes(origin, region)? != bytes.len() as u64 {
            return Err(Status::INVALID_VALUE);
        }
        let (origin, region) = (region::triple(origin)?, region::triple(region)?);
        let write = function!(clEnqueueWriteImage)?;
        let queue = self.context().init_queue()?;
        let _inside = super::watch::Inside::enter();
        // SAFETY: the call blocks, so `bytes` lives until it was copied; the region has its size.
        api::check(unsafe {
            write(
                queue.raw(),
                self.raw(),
                CL_TRUE,
                origin.as_ptr(),
                region.as_ptr(),
                0,
                0,
                bytes.as_ptr().cast(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        })?;
        queue.finish()
    }

    pub(super) fn shape(&self) -> Result<Shape, Status> {
        match self.kind() {
            Kind::Image(shape) => Ok(*shape),
            Kind::Buffer | Kind::Pipe => Err(Status::INVALID_MEM_OBJECT),
        }
    }

    /// Clears the image: a client must not see what another one left in the device's memory.
    fn clear_image(&self) -> Result<(), Status> {
        let whole = self.shape()?.whole;
        if self.fill_zero(whole).is_ok() {
            return Ok(());
        }
        // Some formats cannot be filled. They are written by layer, to need less memory.
        let layer = [whole[0], whole[1], 1];
        let zeros = vec![0; api::size(self.region_bytes([0; 3], layer)?)?];
        (0..whole[2]).try_for_each(|z| self.init_image([0, 0, z], layer, &zeros))
    }

    fn fill_zero(&self, whole: [u64; 3]) -> Result<(), Status> {
        let fill = function!(clEnqueueFillImage)?;
        let finish = function!(clFinish)?;
        let queue = self.context().init_queue()?;
        let (origin, region) = ([0; 3], region::triple(whole)?);
        // Zero as float, signed and unsigned.
        let colour = [0_u32; 4];
        let _inside = super::watch::Inside::enter();
        // SAFETY: no format needs more than the colour's four words; the region is the whole image.
        api::check(unsafe {
            fill(
                queue.raw(),
                self.raw(),
                colour.as_ptr().cast(),
                origin.as_ptr(),
                region.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        })?;
        // SAFETY: the queue lives.
        api::check(unsafe { finish(queue.raw()) })
    }
}

/// Returns the region of the whole image, by its type.
fn whole(description: &ImageDescription) -> Result<[u64; 3], Status> {
    let ImageDescription { width, height, depth, array_size, .. } = *description;
    let whole = match description.image_type {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => [width, 1, 1],
        CL_MEM_OBJECT_IMAGE1D_ARRAY => [width, array_size, 1],
        CL_MEM_OBJECT_IMAGE2D => [width, height, 1],
        CL_MEM_OBJECT_IMAGE2D_ARRAY => [width, height, array_size],
        CL_MEM_OBJECT_IMAGE3D => [width, height, depth],
        _ => return Err(INVALID_IMAGE_DESCRIPTOR),
    };
    // No format has elements of 64 bytes or more.
    region::extent(whole).and_then(|_| region::bytes(whole, 64)).map_err(|_| INVALID_IMAGE_SIZE)?;
    Ok(whole)
}

/// Checks that the image lies within its parent. Drivers check this too, but not all of them fully.
fn check_parent(
    context: &Context,
    description: &ImageDescription,
    whole: [u64; 3],
    pixel: Option<u64>,
    parent: &Mem,
) -> Result<(), Status> {
    if parent.context().id() != context.id() {
        return Err(Status::INVALID_CONTEXT);
    }
    let pixel = pixel.ok_or(INVALID_IMAGE_FORMAT)?;
    if let Ok(shape) = parent.shape() {
        // An image from an image: "all of the values must match, except the channel order".
        return if shape == (Shape { whole, pixel }) {
            Ok(())
        } else {
            Err(INVALID_IMAGE_DESCRIPTOR)
        };
    }
    parent.expect_buffer()?;
    let row = whole[0] * pixel;
    let needed = match description.image_type {
        CL_MEM_OBJECT_IMAGE1D_BUFFER => Some(row),
        CL_MEM_OBJECT_IMAGE2D => {
            let pitch = if description.row_pitch == 0 { row } else { description.row_pitch };
            if pitch < row {
                return Err(INVALID_IMAGE_DESCRIPTOR);
            }
            // "image_row_pitch x image_height <= size of the buffer"
            pitch.checked_mul(whole[1])
        }
        _ => return Err(INVALID_IMAGE_DESCRIPTOR),
    };
    if needed.is_some_and(|needed| needed <= parent.size()) {
        Ok(())
    } else {
        Err(INVALID_IMAGE_SIZE)
    }
}

fn create(
    context: &Context,
    flags: u64,
    description: &ImageDescription,
    parent: Option<&Mem>,
) -> Result<OwnedMem, Status> {
    let create = function!(clCreateImage)?;
    let format = cl_image_format {
        image_channel_order: description.channel_order,
        image_channel_data_type: description.channel_type,
    };
    let from_buffer = parent.is_some();
    let desc = cl_image_desc {
        image_type: description.image_type,
        image_width: api::size(description.width)?,
        image_height: api::size(description.height)?,
        image_depth: api::size(description.depth)?,
        image_array_size: api::size(description.array_size)?,
        // "image_row_pitch must be 0 if host_ptr is NULL", except for an image from a buffer.
        image_row_pitch: if from_buffer { api::size(description.row_pitch)? } else { 0 },
        image_slice_pitch: if from_buffer { api::size(description.slice_pitch)? } else { 0 },
        num_mip_levels: 0,
        num_samples: 0,
        __bindgen_anon_1: penstock_cl_sys::_cl_image_desc__bindgen_ty_1 {
            mem_object: parent.map_or(std::ptr::null_mut(), Mem::raw),
        },
    };
    let mut code = 0;
    let flags = flags & super::memory::KERNEL_FLAGS;
    // SAFETY: context and parent live; the driver copies format and description.
    let raw =
        unsafe { create(context.raw(), flags, &format, &desc, std::ptr::null_mut(), &mut code) };
    api::made(raw, code).map(OwnedMem::take)
}

fn element_size(image: &OwnedMem) -> Result<u64, Status> {
    let get = function!(clGetImageInfo)?;
    // SAFETY: the image lives, and `number` passes a location of the given size.
    let size = api::number::<usize>(|size, value, true_size| unsafe {
        get(image.raw(), CL_IMAGE_ELEMENT_SIZE, size, value, true_size)
    })?;
    Ok(size as u64)
}
