//! Commands on buffers.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cl_sys::*;
use penstock_client::summary::Reason;
use penstock_client::{Event, Memory, Rect, Want};
use penstock_wire::Status;

use super::waits::{hand_out, wait_list, want, want_turn};
use crate::core::event::wait_for;
use crate::core::memory::{Kind, Mem, root};
use crate::core::queue::Queue;
use crate::core::rect::{self, Layout};
use crate::core::target::{HostSource, HostTarget};
use crate::edge::{ClError, ClResult, Object, Ref, array, cl_entry, functions, require};

functions! {
    slots {
        clEnqueueReadBuffer, clEnqueueWriteBuffer, clEnqueueReadBufferRect,
        clEnqueueWriteBufferRect, clEnqueueCopyBuffer, clEnqueueCopyBufferRect, clEnqueueFillBuffer,
        clEnqueueMigrateMemObjects,
    }
}

/// Returns the memory object of a command in `queue`, which may be a heap.
fn any_for(queue: &Queue, raw: cl_mem) -> ClResult<Ref<Mem>> {
    let mem = Mem::borrow(raw)?;
    // "CL_INVALID_CONTEXT if the context associated with command_queue and buffer are not the same"
    require(Arc::ptr_eq(&mem.context, &queue.context), CL_INVALID_CONTEXT)?;
    Ok(mem)
}

/// Returns the memory object of a command in `queue`; refuses heaps.
pub(super) fn object_for(queue: &Queue, raw: cl_mem) -> ClResult<Ref<Mem>> {
    let mem = any_for(queue, raw)?;
    // A global buffer (`cl_penstock_global_buffer`) allows no other commands.
    require(!matches!(mem.kind, Kind::Heap(_)), CL_INVALID_OPERATION)?;
    Ok(mem)
}

/// Returns the buffer or heap of a read or write in `queue`, which means the device's part of a
/// heap.
fn transfer_for(queue: &Queue, raw: cl_mem) -> ClResult<Ref<Mem>> {
    let mem = any_for(queue, raw)?;
    if matches!(mem.kind, Kind::Heap(_)) { Ok(mem) } else { buffer_for(queue, raw) }
}

/// Returns the buffer of a command in `queue`.
pub(super) fn buffer_for(queue: &Queue, raw: cl_mem) -> ClResult<Ref<Mem>> {
    let mem = object_for(queue, raw)?;
    // "CL_INVALID_MEM_OBJECT if buffer is not a valid buffer object."
    require(matches!(mem.kind, Kind::Buffer), CL_INVALID_MEM_OBJECT)?;
    if mem.parent.is_some() {
        // "CL_MISALIGNED_SUB_BUFFER_OFFSET if buffer is a sub-buffer object and offset specified
        // when the sub-buffer object is created is not aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN
        // value for device associated with queue."
        let align = queue.device.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
        require(
            align == 0 || (mem.origin as u64).is_multiple_of(align),
            CL_MISALIGNED_SUB_BUFFER_OFFSET,
        )?;
    }
    Ok(mem)
}

/// Reads three numbers of the program.
///
/// # Safety
/// `pointer` is `NULL` or points to three numbers.
pub(super) unsafe fn triple(pointer: *const usize) -> ClResult<[usize; 3]> {
    // SAFETY: guaranteed by the caller.
    let numbers = unsafe { array(pointer, 3, CL_INVALID_VALUE) }?;
    numbers.first_chunk().copied().ok_or(ClError(CL_INVALID_VALUE))
}

/// Returns whether a write needs an event. A blocking write whose event the program does not want
/// needs none, but its effect must be done when the call returns.
pub(super) fn want_written(blocking: cl_bool, event: *mut cl_event) -> Want {
    if blocking != CL_FALSE && event.is_null() { Want::Settled } else { want(event) }
}

/// Completes a blocking write: its bytes have left the program's memory, and other queues see them.
/// Returns its failure if it is known. `asked`: the program gets the event.
pub(super) fn check_written(
    queue: &Queue,
    blocking: cl_bool,
    enqueued: Option<&Event>,
    asked: bool,
) -> ClResult {
    if blocking == CL_FALSE {
        return Ok(());
    }
    if let Some(event) = enqueued {
        queue.pool.settle(event);
        // "CL_PROFILING_INFO_NOT_AVAILABLE ... if the execution status of the command identified by
        // event is not CL_COMPLETE". With drivers a blocking write has ended when it returns, so
        // programs query its times at once.
        if asked && queue.profiles() {
            wait_for(event)?;
        }
    }
    // "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the read and write operations are blocking
    // and the execution status of any of the events in event_wait_list is a negative integer
    // value."
    enqueued.and_then(Event::known_status).map_or(Ok(()), Status::ok)?;
    // With drivers a blocking write waits for its queue, and so reports earlier failures there.
    Ok(queue.pool.check()?)
}

/// Waits for a blocking read. Also reports, once, an earlier refused command of the queue of which
/// the program has no event: the bytes read may be older than the program assumes.
pub(super) fn check_read(queue: &Queue, blocking: cl_bool, enqueued: Option<&Event>) -> ClResult {
    if blocking == CL_FALSE {
        return Ok(());
    }
    queue.pool.waiting(Reason::Read, || enqueued.map_or(Ok(()), wait_for))?;
    Ok(queue.pool.check()?)
}

cl_entry! {
    fn clEnqueueReadBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        offset: usize,
        size: usize,
        pointer: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = transfer_for(&queue, buffer)?;
        let range = mem.range(offset, size)?;
        // "CL_INVALID_VALUE ... if ptr is a NULL value."
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        mem.host_reads()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if size == 0 {
            queue.pool.pass(&waits, want_turn(blocking, event))?
        } else {
            // SAFETY: "ptr is the pointer to buffer in host memory where data is to be read into",
            // until the command ends.
            let target = unsafe { HostTarget::linear(pointer.cast(), size, None) };
            match &mem.kind {
                Kind::Heap(heap) => heap.read(&queue.pool, range, target, &waits)?,
                _ if blocking == CL_FALSE => {
                    queue.pool.read(&mem.pool, range, target, &waits, want(event))?
                }
                _ => queue.pool.waiting(Reason::Read, || {
                    queue.pool.read_now(&mem.pool, range, target, &waits, want(event))
                })?,
            }
        };
        check_read(&queue, blocking, enqueued.as_ref())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_READ_BUFFER, &queue, event) };
        Ok(())
    }
    fn clEnqueueWriteBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        offset: usize,
        size: usize,
        pointer: *const c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = transfer_for(&queue, buffer)?;
        mem.range(offset, size)?;
        // "CL_INVALID_VALUE ... if ptr is a NULL value."
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        mem.host_writes()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if size == 0 {
            queue.pool.pass(&waits, want_written(blocking, event))?
        } else {
            // SAFETY: "ptr is the pointer to buffer in host memory where data is to be ... written
            // from"; the `size` bytes fit into a buffer, so they fit into a slice.
            let source = unsafe { HostSource::linear(pointer.cast(), size, None) };
            let wanted = want_written(blocking, event);
            match &mem.kind {
                Kind::Heap(heap) => heap.write(&queue.pool, offset as u64, &source, &waits, wanted)?,
                _ => queue.pool.write(&mem.pool, offset as u64, &source, &waits, wanted)?,
            }
        };
        check_written(&queue, blocking, enqueued.as_ref(), !event.is_null())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_WRITE_BUFFER, &queue, event) };
        Ok(())
    }
}

/// Both sides of a transfer of a box between a buffer and the program's memory.
struct RectTransfer {
    rect: Rect,
    region: [usize; 3],
    host: Layout,
}

/// The parameters with which the program describes the box of a transfer.
struct RectParameters {
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
}

impl RectTransfer {
    /// Checks the box on both sides, and the host's memory.
    ///
    /// # Safety
    /// Each pointer to an origin or to the region is `NULL` or points to three numbers.
    unsafe fn read(mem: &Mem, parameters: &RectParameters, pointer: *const u8) -> ClResult<Self> {
        // SAFETY: guaranteed by the caller.
        let (buffer_origin, host_origin) =
            unsafe { (triple(parameters.buffer_origin)?, triple(parameters.host_origin)?) };
        // SAFETY: guaranteed by the caller.
        let region = unsafe { triple(parameters.region) }?;
        let (row, slice) = (parameters.buffer_row_pitch, parameters.buffer_slice_pitch);
        let buffer = Layout::of_rect(buffer_origin, region, row, slice)?;
        check_box(&buffer, region, mem)?;
        let (row, slice) = (parameters.host_row_pitch, parameters.host_slice_pitch);
        let host = Layout::of_rect(host_origin, region, row, slice)?;
        let end = host.end(region).is_some_and(|end| isize::try_from(end).is_ok());
        require(end, CL_INVALID_VALUE)?;
        // "CL_INVALID_VALUE if ptr is NULL."
        require(!pointer.is_null(), CL_INVALID_VALUE)?;
        Ok(Self { rect: to_rect(buffer_origin, &buffer), region, host })
    }

    fn wide_region(&self) -> [u64; 3] {
        self.region.map(|n| n as u64)
    }
}

/// Checks that a box lies in a buffer.
fn check_box(layout: &Layout, region: [usize; 3], mem: &Mem) -> ClResult {
    // "CL_INVALID_VALUE if any region array element is 0."
    require(region.iter().all(|n| *n > 0), CL_INVALID_VALUE)?;
    // "CL_INVALID_VALUE if the region being read or written specified by (buffer_origin, region,
    // buffer_row_pitch, buffer_slice_pitch) is out of bounds."
    require(layout.end(region).is_some_and(|end| end <= mem.size), CL_INVALID_VALUE)
}

fn to_rect(origin: [usize; 3], layout: &Layout) -> Rect {
    Rect {
        origin: origin.map(|n| n as u64),
        row_pitch: layout.row_pitch as u64,
        slice_pitch: layout.slice_pitch as u64,
    }
}

cl_entry! {
    fn clEnqueueReadBufferRect(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        pointer: *mut c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = buffer_for(&queue, buffer)?;
        let parameters = RectParameters { buffer_origin, host_origin, region, buffer_row_pitch,
            buffer_slice_pitch, host_row_pitch, host_slice_pitch };
        // SAFETY: the program passes three arrays of three numbers.
        let transfer = unsafe { RectTransfer::read(&mem, &parameters, pointer.cast()) }?;
        mem.host_reads()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (pieces, bytes) = (transfer.host.pieces(transfer.region), transfer.region.iter().product());
        // SAFETY: the program wants the box to be written until the command ends.
        let target = unsafe { HostTarget::new(pointer.cast(), pieces, bytes, None) };
        let enqueued = queue.pool.read_rect(&mem.pool, transfer.rect, transfer.wide_region(), target, &waits)?;
        check_read(&queue, blocking, enqueued.as_ref())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_READ_BUFFER_RECT, &queue, event) };
        Ok(())
    }
    fn clEnqueueWriteBufferRect(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        pointer: *const c_void,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = buffer_for(&queue, buffer)?;
        let parameters = RectParameters { buffer_origin, host_origin, region, buffer_row_pitch,
            buffer_slice_pitch, host_row_pitch, host_slice_pitch };
        // SAFETY: the program passes three arrays of three numbers.
        let transfer = unsafe { RectTransfer::read(&mem, &parameters, pointer.cast()) }?;
        mem.host_writes()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (pieces, bytes) = (transfer.host.pieces(transfer.region), transfer.region.iter().product());
        // SAFETY: the program wants the box to be read until the command ends.
        let source = unsafe { HostSource::new(pointer.cast(), pieces, bytes, None) };
        let region = transfer.wide_region();
        let wanted = want_written(blocking, event);
        let enqueued = queue.pool.write_rect(&mem.pool, transfer.rect, region, &source, &waits, wanted)?;
        check_written(&queue, blocking, enqueued.as_ref(), !event.is_null())?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_WRITE_BUFFER_RECT, &queue, event) };
        Ok(())
    }
    fn clEnqueueCopyBuffer(
        queue: cl_command_queue,
        source: cl_mem,
        target: cl_mem,
        source_offset: usize,
        target_offset: usize,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let (source, target) = (buffer_for(&queue, source)?, buffer_for(&queue, target)?);
        let from = source.range(source_offset, size)?;
        let to = target.range(target_offset, size)?;
        if Arc::ptr_eq(root(&source), root(&target)) {
            // "CL_MEM_COPY_OVERLAP if src_buffer and dst_buffer are the same buffer or sub-buffer
            // object and the source and destination regions overlap or if src_buffer and dst_buffer
            // are different sub-buffers of the same associated buffer object and they overlap."
            let distance = (source.origin + source_offset).abs_diff(target.origin + target_offset);
            require(distance >= size, CL_MEM_COPY_OVERLAP)?;
        }
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if size == 0 {
            queue.pool.pass(&waits, want(event))?
        } else {
            let (from, to) = ((&source.pool, from.offset), (&target.pool, to.offset));
            queue.pool.copy(from, to, size as u64, &waits, want(event))?
        };
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_COPY_BUFFER, &queue, event) };
        Ok(())
    }
    fn clEnqueueCopyBufferRect(
        queue: cl_command_queue,
        source: cl_mem,
        target: cl_mem,
        source_origin: *const usize,
        target_origin: *const usize,
        region: *const usize,
        source_row_pitch: usize,
        source_slice_pitch: usize,
        target_row_pitch: usize,
        target_slice_pitch: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let (source, target) = (buffer_for(&queue, source)?, buffer_for(&queue, target)?);
        // SAFETY: the program passes three arrays of three numbers.
        let (source_origin, target_origin) = unsafe { (triple(source_origin)?, triple(target_origin)?) };
        // SAFETY: as above.
        let region = unsafe { triple(region) }?;
        let from = Layout::of_rect(source_origin, region, source_row_pitch, source_slice_pitch)?;
        let to = Layout::of_rect(target_origin, region, target_row_pitch, target_slice_pitch)?;
        check_box(&from, region, &source)?;
        check_box(&to, region, &target)?;
        if Arc::ptr_eq(&source, &target) {
            // "CL_INVALID_VALUE if src_buffer and dst_buffer are the same buffer object and
            // src_slice_pitch is not equal to dst_slice_pitch and src_row_pitch is not equal to
            // dst_row_pitch."
            require((from.row_pitch, from.slice_pitch) == (to.row_pitch, to.slice_pitch), CL_INVALID_VALUE)?;
        }
        if Arc::ptr_eq(root(&source), root(&target)) {
            // "CL_MEM_COPY_OVERLAP if src_buffer and dst_buffer are the same buffer or sub-buffer
            // object and the source and destination regions overlap"
            let inside = |layout: &Layout, mem: &Mem| Layout { start: layout.start + mem.origin, ..*layout };
            let overlap = rect::overlap(&inside(&from, &source), &inside(&to, &target), region);
            require(!overlap, CL_MEM_COPY_OVERLAP)?;
        }
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let (source, from) = in_whole(&queue, &source, source_origin, &from);
        let (target, to) = in_whole(&queue, &target, target_origin, &to);
        let region = region.map(|n| n as u64);
        let enqueued = queue.pool.copy_rect((source, from), (target, to), region, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_COPY_BUFFER_RECT, &queue, event) };
        Ok(())
    }
    fn clEnqueueFillBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        let mem = buffer_for(&queue, buffer)?;
        let range = mem.range(offset, size)?;
        check_pattern(pattern_size, offset, size)?;
        // SAFETY: "pattern is a pointer to the data pattern of size pattern_size in bytes."
        let pattern = unsafe { array(pattern.cast::<u8>(), pattern_size, CL_INVALID_VALUE) }?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = if size == 0 {
            queue.pool.pass(&waits, want(event))?
        } else {
            queue.pool.fill(&mem.pool, pattern, range, &waits, want(event))?
        };
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_FILL_BUFFER, &queue, event) };
        Ok(())
    }
    fn clEnqueueMigrateMemObjects(
        queue: cl_command_queue,
        count: cl_uint,
        objects: *const cl_mem,
        flags: cl_mem_migration_flags,
        wait_count: cl_uint,
        waits: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult<()> {
        let queue = Queue::borrow_host(queue)?;
        // "CL_INVALID_VALUE if num_mem_objects is zero or if mem_objects is NULL."
        require(count > 0 && !objects.is_null(), CL_INVALID_VALUE)?;
        // "CL_INVALID_VALUE if flags is not 0 or is not any of the values described in the table
        // above."
        require(flags & !(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) == 0, CL_INVALID_VALUE)?;
        // SAFETY: "mem_objects is a pointer to a list of memory objects", `count` of them.
        let objects = unsafe { array(objects, count as usize, CL_INVALID_VALUE) }?;
        let objects = objects.iter().map(|raw| object_for(&queue, *raw).map(|mem| mem.pool.clone()));
        let objects = objects.collect::<ClResult<Vec<_>>>()?;
        // SAFETY: the program passes `NULL` or `wait_count` events.
        let waits = unsafe { wait_list(&queue.context, wait_count, waits) }?;
        let enqueued = queue.pool.migrate(&objects, flags, &waits, want(event))?;
        // SAFETY: the program passes `NULL` or a place for an event.
        unsafe { hand_out(enqueued, CL_COMMAND_MIGRATE_MEM_OBJECTS, &queue, event) };
        Ok(())
    }
}

/// Returns the memory and box of a sub-buffer's box. For PoCL this is the same box in the whole
/// buffer: PoCL 3.1 crashes when it copies boxes of sub-buffers.
fn in_whole<'a>(
    queue: &Queue,
    mem: &'a Ref<Mem>,
    [x, y, z]: [usize; 3],
    layout: &Layout,
) -> (&'a Arc<Memory>, Rect) {
    let is_pocl = || {
        let version = queue.device.answer(CL_DEVICE_VERSION).unwrap_or_default();
        version.windows(4).any(|word| word.eq_ignore_ascii_case(b"pocl"))
    };
    if mem.parent.is_some() && is_pocl() {
        (&root(mem).pool, to_rect([x + mem.origin, y, z], layout))
    } else {
        (&mem.pool, to_rect([x, y, z], layout))
    }
}

/// Checks the pattern of a fill.
pub(super) fn check_pattern(pattern_size: usize, start: usize, size: usize) -> ClResult {
    // "CL_INVALID_VALUE if pattern is NULL or if pattern_size is 0 or if pattern_size is not one of
    // { 1, 2, 4, 8, 16, 32, 64, 128 }."
    require(pattern_size.is_power_of_two() && pattern_size <= 128, CL_INVALID_VALUE)?;
    // "CL_INVALID_VALUE if offset and size are not a multiple of pattern_size."
    require(
        start.is_multiple_of(pattern_size) && size.is_multiple_of(pattern_size),
        CL_INVALID_VALUE,
    )
}
