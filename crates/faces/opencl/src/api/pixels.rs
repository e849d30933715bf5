//! Commands on images.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cl_sys::*;

use super::buffer::{buffer_for, check_read, check_written, triple, want_written};
use super::image::{image_for, region_of};
use super::waits::{hand_out, wait_list, want};
use crate::core::image::{Image, host_layout};
use crate::core::queue::Queue;
use crate::core::rect::Layout;
use crate::core::target::{HostSource, HostTarget};
use crate::edge::{ClResult, array, cl_entry, functions, require};

functions! {
    slots {
        clEnqueueReadImage, clEnqueueWriteImage, clEnqueueFillImage, clEnqueueCopyImage,
        clEnqueueCopyImageToBuffer, clEnqueueCopyBufferToImage,
    }
}

fn wide(numbers: [usize; 3]) -> [u64; 3] {
    numbers.map(|n| n as u64)
}

/// Returns the layout of the host memory at `pointer` for a region of an image.
fn host_memory(
    image: &Image,
    region: [usize; 3],
    (row_pitch, slice_pitch): (usize, usize),
    pointer: *const c_void,
) -> ClResult<Layout> {
    let layout = host_layout(image.image_type, region, image.pixel, row_pitch, slice_pitch)?;
    // "CL_INVALID_VALUE ... if ptr is a NULL value."
    require(!pointer.is_null(), CL_INVALID_VALUE)?;
    Ok(layout)
}

cl_entry! {
    fn clEnqueueReadImage(
        queue: cl_command_queue,
        image: cl_mem,
        blocking: cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        pointer: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = image_for(&queue, image)?;
        let image = mem.image()?;
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        let host = host_memory(image, region, (row_pitch, slice_pitch), pointer)?;
        mem.host_reads()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let rows = image.host_region(region);
        // SAFETY: the program wants the region to be written until the command ends.
        let target = unsafe { HostTarget::new(pointer.cast(), host.pieces(rows), rows.iter().product(), None) };
        let enqueued = queue.pool.read_image(&mem.pool, (wide(origin), wide(region)), target, &waits)?;
        check_read(&queue, blocking, enqueued.as_ref())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_READ_IMAGE, &queue, event) };
        Ok(())
    }
    fn clEnqueueWriteImage(
        queue: cl_command_queue,
        image: cl_mem,
        blocking: cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        pointer: *const c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = image_for(&queue, image)?;
        let image = mem.image()?;
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        let host = host_memory(image, region, (row_pitch, slice_pitch), pointer)?;
        mem.host_writes()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let rows = image.host_region(region);
        // SAFETY: the program wants the region to be read until the command ends.
        let source = unsafe { HostSource::new(pointer.cast(), host.pieces(rows), rows.iter().product(), None) };
        let area = (wide(origin), wide(region));
        let enqueued = queue.pool.write_image(&mem.pool, area, &source, &waits, want_written(blocking, event))?;
        check_written(&queue, blocking, enqueued.as_ref(), !event.is_null())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_WRITE_IMAGE, &queue, event) };
        Ok(())
    }
    fn clEnqueueFillImage(
        queue: cl_command_queue,
        image: cl_mem,
        colour: *const c_void,
        origin: *const usize,
        region: *const usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = image_for(&queue, image)?;
        let image = mem.image()?;
        // "The fill color is a single floating-point value if the channel order is CL_DEPTH.
        // Otherwise, the fill color is a four component RGBA ... color value" of 4 bytes each.
        let given = if image.format.image_channel_order == CL_DEPTH { 4 } else { 16 };
        // SAFETY: the program passes `given` bytes. "CL_INVALID_VALUE if fill_color is NULL."
        let given = unsafe { array(colour.cast::<u8>(), given, CL_INVALID_VALUE) }?;
        let mut colour = [0; 16];
        colour.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = queue.pool.fill_image(&mem.pool, &colour, (wide(origin), wide(region)), &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_FILL_IMAGE, &queue, event) };
        Ok(())
    }
    fn clEnqueueCopyImage(
        queue: cl_command_queue,
        source: cl_mem,
        target: cl_mem,
        source_origin: *const usize,
        target_origin: *const usize,
        region: *const usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let (source, target) = (image_for(&queue, source)?, image_for(&queue, target)?);
        let (from, to) = (source.image()?, target.image()?);
        // "CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format."
        let same = from.format.image_channel_order == to.format.image_channel_order
            && from.format.image_channel_data_type == to.format.image_channel_data_type;
        require(same, CL_IMAGE_FORMAT_MISMATCH)?;
        // SAFETY: the program passes three arrays of three numbers.
        let (source_origin, target_origin) = unsafe { (triple(source_origin)?, triple(target_origin)?) };
        // SAFETY: as above.
        let region = unsafe { triple(region) }?;
        from.check_region(source_origin, region)?;
        to.check_region(target_origin, region)?;
        if Arc::ptr_eq(&source, &target) {
            // "CL_MEM_COPY_OVERLAP if src_image and dst_image are the same image object and the
            // source and destination regions overlap."
            let apart = (0..3).any(|axis| source_origin[axis].abs_diff(target_origin[axis]) >= region[axis]);
            require(apart, CL_MEM_COPY_OVERLAP)?;
        }
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (from, to) = ((&source.pool, wide(source_origin)), (&target.pool, wide(target_origin)));
        let enqueued = queue.pool.copy_image(from, to, wide(region), &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_COPY_IMAGE, &queue, event) };
        Ok(())
    }
    fn clEnqueueCopyImageToBuffer(
        queue: cl_command_queue,
        source: cl_mem,
        target: cl_mem,
        origin: *const usize,
        region: *const usize,
        offset: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let (source, target) = (image_for(&queue, source)?, buffer_for(&queue, target)?);
        let image = source.image()?;
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        // "CL_INVALID_VALUE ... if the region specified by dst_offset and dst_offset + dst_cb refer
        // to a region outside dst_buffer."
        let bytes = image.host_region(region).iter().product();
        target.range(offset, bytes)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (from, to) = ((&source.pool, wide(origin)), (&target.pool, offset as u64));
        let enqueued = queue.pool.copy_image_to_buffer(from, wide(region), to, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_COPY_IMAGE_TO_BUFFER, &queue, event) };
        Ok(())
    }
    fn clEnqueueCopyBufferToImage(
        queue: cl_command_queue,
        source: cl_mem,
        target: cl_mem,
        offset: usize,
        origin: *const usize,
        region: *const usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let (source, target) = (buffer_for(&queue, source)?, image_for(&queue, target)?);
        let image = target.image()?;
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        // "CL_INVALID_VALUE ... if the region specified by src_offset and src_offset + src_cb refer
        // to a region outside src_buffer."
        let bytes = image.host_region(region).iter().product();
        source.range(offset, bytes)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (from, to) = ((&source.pool, offset as u64), (&target.pool, wide(origin)));
        let enqueued = queue.pool.copy_buffer_to_image(from, to, wide(region), &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_COPY_BUFFER_TO_IMAGE, &queue, event) };
        Ok(())
    }
}
