use std::ptr::{null, null_mut};

use penstock_cl_sys::{CL_IMAGE_ELEMENT_SIZE, CL_TRUE, cl_image_desc, cl_image_format};
use penstock_wire::describe::ImageDescription;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::memory::{Mem, keep_until_deleted, raw};
use super::owned::OwnedMem;
use crate::account::Share;
use crate::driver;
use crate::region;

impl Mem {
    /// `clCreateImage`, from `parent` if there is one. Returns the bytes per element, too.
    pub(super) fn image(
        context: &Context,
        flags: u64,
        description: &ImageDescription,
        parent: Option<&driver::Mem>,
        share: Option<Share>,
    ) -> Result<(Self, u64), Status> {
        let raw = create(context, flags, description, parent)?;
        if let Some(share) = share {
            keep_until_deleted(&raw, share)?;
        }
        let pixel = element_size(&raw)?;
        Ok((Self::of(raw, context), pixel))
    }

    /// Sets a region. Blocks until the content is set.
    pub(super) fn write_whole(
        &self,
        origin: [usize; 3],
        region: [usize; 3],
        bytes: &[u8],
    ) -> Result<(), Status> {
        let write = function!(clEnqueueWriteImage)?;
        let (origin, region, from) = (origin.as_ptr(), region.as_ptr(), bytes.as_ptr().cast());
        self.set(|queue, mem| {
            // SAFETY: the call blocks, so `origin`, `region` and `bytes` live until they were read;
            // the region has the size of `bytes`.
            unsafe { write(queue, mem, CL_TRUE, origin, region, 0, 0, from, 0, null(), null_mut()) }
        })
    }

    /// Sets a region from the origin to zero.
    pub(super) fn fill_zero(&self, region: [usize; 3]) -> Result<(), Status> {
        let fill = function!(clEnqueueFillImage)?;
        let origin = [0; 3];
        // Zero as float, signed and unsigned.
        let colour = [0_u32; 4];
        let (origin, region) = (origin.as_ptr(), region.as_ptr());
        self.set(|queue, mem| {
            let colour = colour.as_ptr().cast();
            // SAFETY: no format needs more than the colour's four words; the region is in the
            // image.
            unsafe { fill(queue, mem, colour, origin, region, 0, null(), null_mut()) }
        })
    }
}

fn create(
    context: &Context,
    flags: u64,
    description: &ImageDescription,
    parent: Option<&driver::Mem>,
) -> Result<OwnedMem, Status> {
    let create = function!(clCreateImage)?;
    let format = cl_image_format {
        image_channel_order: description.channel_order,
        image_channel_data_type: description.channel_type,
    };
    let from_buffer = parent.is_some();
    let desc = cl_image_desc {
        image_type: description.image_type,
        image_width: region::narrow(description.width)?,
        image_height: region::narrow(description.height)?,
        image_depth: region::narrow(description.depth)?,
        image_array_size: region::narrow(description.array_size)?,
        // "image_row_pitch must be 0 if host_ptr is NULL", except for an image from a buffer.
        image_row_pitch: if from_buffer { region::narrow(description.row_pitch)? } else { 0 },
        image_slice_pitch: if from_buffer { region::narrow(description.slice_pitch)? } else { 0 },
        num_mip_levels: 0,
        num_samples: 0,
        __bindgen_anon_1: penstock_cl_sys::_cl_image_desc__bindgen_ty_1 {
            mem_object: parent.map(raw).transpose()?.unwrap_or(null_mut()),
        },
    };
    let mut code = 0;
    // SAFETY: context and parent live; the driver copies format and description.
    let raw = unsafe { create(context.raw(), flags, &format, &desc, null_mut(), &mut code) };
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
