//! Images: their creation and the checks of their regions.

use std::sync::Arc;

use penstock_cl_sys::{
    CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER,
    CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D,
};
use penstock_wire::describe::ImageDescription;
use penstock_wire::status::Status;

use crate::account::Share;
use crate::driver::{Context, Mem, MemKind, MemParts, Shape};
use crate::format::pixel_bytes;
use crate::mem::KERNEL_FLAGS;
use crate::region;

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
            return Err(Status::INVALID_IMAGE_DESCRIPTOR);
        }
        let whole = whole(description)?;
        let known = pixel_bytes(description.channel_order, description.channel_type);
        if let Some(parent) = parent {
            check_parent(context, description, whole, known, parent)?;
        } else if description.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER {
            return Err(Status::INVALID_IMAGE_DESCRIPTOR);
        }
        // Drivers check each dimension, but not all of them the product.
        let least =
            region::bytes(whole, known.unwrap_or(1)).map_err(|_| Status::INVALID_IMAGE_SIZE)?;
        if context.devices().iter().all(|device| least > device.0.driver.limits().allocation) {
            return Err(Status::INVALID_IMAGE_SIZE);
        }
        // An image with a parent uses the parent's memory.
        let share = if parent.is_none() { Some(Share::take(least)?) } else { None };
        let (driver, pixel) =
            context.0.driver.image(flags & KERNEL_FLAGS, description, parent, share)?;
        // The driver reads and writes by its own element size, so the checks must use the same.
        if pixel == 0 || known.is_some_and(|known| known != pixel) {
            return Err(Status::INVALID_IMAGE_FORMAT_DESCRIPTOR);
        }
        let size = region::bytes(whole, pixel).map_err(|_| Status::INVALID_IMAGE_SIZE)?;
        let mem = Self(Arc::new(MemParts {
            driver,
            context: context.clone(),
            kind: MemKind::Image(Shape { whole, pixel }),
            size,
            home: None,
            _parent: parent.cloned(),
        }));
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
        self.0.driver.init_image(region::triple(origin)?, region::triple(region)?, bytes)
    }

    fn shape(&self) -> Result<Shape, Status> {
        match self.0.kind {
            MemKind::Image(shape) => Ok(shape),
            MemKind::Buffer | MemKind::Pipe => Err(Status::INVALID_MEM_OBJECT),
        }
    }

    /// Clears the image: a client must not see what another one left in the device's memory.
    fn clear_image(&self) -> Result<(), Status> {
        let whole = self.shape()?.whole;
        if self.0.driver.clear_image(region::triple(whole)?).is_ok() {
            return Ok(());
        }
        // Some formats cannot be filled. They are written by layer, to need less memory.
        let layer = [whole[0], whole[1], 1];
        let zeros = vec![0; region::narrow(self.region_bytes([0; 3], layer)?)?];
        (0..whole[2]).try_for_each(|z| self.init_image([0, 0, z], layer, &zeros))
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
        _ => return Err(Status::INVALID_IMAGE_DESCRIPTOR),
    };
    // No format has elements of 64 bytes or more.
    region::extent(whole)
        .and_then(|_| region::bytes(whole, 64))
        .map_err(|_| Status::INVALID_IMAGE_SIZE)?;
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
    let pixel = pixel.ok_or(Status::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    if let Ok(shape) = parent.shape() {
        // An image from an image: "all of the values must match, except the channel order".
        return if shape == (Shape { whole, pixel }) {
            Ok(())
        } else {
            Err(Status::INVALID_IMAGE_DESCRIPTOR)
        };
    }
    parent.expect_buffer()?;
    let row = whole[0] * pixel;
    let needed = match description.image_type {
        CL_MEM_OBJECT_IMAGE1D_BUFFER => Some(row),
        CL_MEM_OBJECT_IMAGE2D => {
            let pitch = if description.row_pitch == 0 { row } else { description.row_pitch };
            if pitch < row {
                return Err(Status::INVALID_IMAGE_DESCRIPTOR);
            }
            // "image_row_pitch x image_height <= size of the buffer"
            pitch.checked_mul(whole[1])
        }
        _ => return Err(Status::INVALID_IMAGE_DESCRIPTOR),
    };
    if needed.is_some_and(|needed| needed <= parent.size()) {
        Ok(())
    } else {
        Err(Status::INVALID_IMAGE_SIZE)
    }
}
