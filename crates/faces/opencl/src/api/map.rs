//! Mapping and unmapping.

use std::ffi::c_void;

use penstock_cl_sys::*;

use super::buffer::{buffer_for, check_read, object_for};
use super::image::{image_for, region_of};
use super::waits::{hand_out, wait_list, want, want_turn};
use crate::core::map;
use crate::core::mapping::Region;
use crate::core::memory::{Kind, Mem};
use crate::core::queue::Queue;
use crate::edge::{ClResult, cl_entry, functions, require, store};

functions! { slots { clEnqueueMapBuffer, clEnqueueMapImage, clEnqueueUnmapMemObject } }

/// Checks the flags of a map.
pub(super) fn check_map_flags(flags: cl_map_flags) -> ClResult {
    const READ_WRITE: cl_map_flags = CL_MAP_READ | CL_MAP_WRITE;
    // "CL_INVALID_VALUE ... if values specified in map_flags are not valid."
    require(flags & !(READ_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) == 0, CL_INVALID_VALUE)?;
    // "CL_MAP_READ or CL_MAP_WRITE and CL_MAP_WRITE_INVALIDATE_REGION are mutually exclusive."
    require(
        flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags & READ_WRITE == 0,
        CL_INVALID_VALUE,
    )
}

fn check_access(mem: &Mem, flags: cl_map_flags) -> ClResult {
    // "CL_INVALID_OPERATION if buffer has been created with CL_MEM_HOST_WRITE_ONLY or
    // CL_MEM_HOST_NO_ACCESS and CL_MAP_READ is set in map_flags or if buffer has been created with
    // CL_MEM_HOST_READ_ONLY or CL_MEM_HOST_NO_ACCESS and CL_MAP_WRITE or
    // CL_MAP_WRITE_INVALIDATE_REGION is set in map_flags."
    if flags & CL_MAP_READ != 0 {
        mem.host_reads()?;
    }
    if flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0 {
        mem.host_writes()?;
    }
    Ok(())
}

cl_entry! {
    fn clEnqueueMapBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        flags: cl_map_flags,
        offset: usize,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<*mut c_void> {
        let queue = Queue::borrow_host(queue)?;
        let mem = buffer_for(&queue, buffer)?;
        mem.range(offset, size)?;
        // "CL_INVALID_VALUE if region being mapped given by (offset, size) is out of bounds or if
        // size is 0"
        require(size > 0, CL_INVALID_VALUE)?;
        check_map_flags(flags)?;
        check_access(&mem, flags)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let wanted = want_turn(blocking, event);
        let (address, mapped) = map::map(&queue, &mem, Region::Bytes { offset, size }, flags, &waits, wanted)?;
        check_read(&queue, blocking, Some(&mapped)).inspect_err(|_| map::forget(&mem, address.addr()))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(Some(mapped), CL_COMMAND_MAP_BUFFER, &queue, event) };
        Ok(address.cast())
    }
}
cl_entry! {
    fn clEnqueueMapImage(
        queue: cl_command_queue,
        image: cl_mem,
        blocking: cl_bool,
        flags: cl_map_flags,
        origin: *const usize,
        region: *const usize,
        row_pitch_ret: *mut usize,
        slice_pitch_ret: *mut usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<*mut c_void> {
        let queue = Queue::borrow_host(queue)?;
        let mem = image_for(&queue, image)?;
        let image = mem.image()?;
        // SAFETY: the program passes two arrays of three numbers.
        let (origin, region) = unsafe { region_of(image, origin, region) }?;
        // "CL_INVALID_VALUE if image_row_pitch is NULL."
        require(!row_pitch_ret.is_null(), CL_INVALID_VALUE)?;
        // "CL_INVALID_VALUE if image is a 3D image, 1D or 2D image array object and
        // image_slice_pitch is NULL."
        require(!slice_pitch_ret.is_null() || image.slice_pitch() == 0, CL_INVALID_VALUE)?;
        check_map_flags(flags)?;
        check_access(&mem, flags)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let wanted = want_turn(blocking, event);
        let (address, mapped) = map::map(&queue, &mem, Region::Box { origin, region }, flags, &waits, wanted)?;
        check_read(&queue, blocking, Some(&mapped)).inspect_err(|_| map::forget(&mem, address.addr()))?;
        // SAFETY: the program passes `NULL` or places for two numbers.
        unsafe {
            store(row_pitch_ret, image.row_pitch());
            store(slice_pitch_ret, image.slice_pitch());
        }
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(Some(mapped), CL_COMMAND_MAP_IMAGE, &queue, event) };
        Ok(address.cast())
    }
}
cl_entry! {
    fn clEnqueueUnmapMemObject(
        queue: cl_command_queue,
        memory: cl_mem,
        pointer: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = object_for(&queue, memory)?;
        // "CL_INVALID_MEM_OBJECT if memobj is not a valid memory object or is a pipe object."
        require(!matches!(mem.kind, Kind::Pipe { .. }), CL_INVALID_MEM_OBJECT)?;
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = map::unmap(&queue, &mem, pointer.addr(), &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_UNMAP_MEM_OBJECT, &queue, event) };
        Ok(())
    }
}
