//! Commands on buffers: writes, reads, copies, fills.

use std::ffi::c_void;

use penstock_cl_sys::{
    CL_COMMAND_COPY_BUFFER, CL_COMMAND_COPY_BUFFER_RECT, CL_COMMAND_FILL_BUFFER,
    CL_COMMAND_READ_BUFFER, CL_COMMAND_READ_BUFFER_RECT, CL_COMMAND_WRITE_BUFFER,
    CL_COMMAND_WRITE_BUFFER_RECT, cl_bool, cl_command_queue, cl_event, cl_int, cl_mem, cl_uint,
};
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::command::Work;
use super::enqueue::{Tail, enqueue};
use super::memory::Memory;
use super::object::{self, Address};

pub(super) unsafe extern "C" fn write(
    queue: cl_command_queue,
    memory: cl_mem,
    blocking: cl_bool,
    offset: usize,
    size: usize,
    from: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::share::<Memory>(memory) }?;
        let to = memory.range(offset, size)?;
        let from = host(from.cast_mut())?;
        let (work, tail) = (Work::Write { from, to, done: 0 }, Tail { count, waits, event });
        // SAFETY: the caller passes valid arguments; the bytes stay until the command has ended.
        unsafe {
            enqueue(queue, CL_COMMAND_WRITE_BUFFER, work, [Some(memory), None], tail, blocking != 0)
        }
    })
}

pub(super) unsafe extern "C" fn read(
    queue: cl_command_queue,
    memory: cl_mem,
    blocking: cl_bool,
    offset: usize,
    size: usize,
    to: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::share::<Memory>(memory) }?;
        let from = memory.range(offset, size)?;
        let to = host(to)?;
        let (work, tail) = (Work::Read { from, to, done: 0 }, Tail { count, waits, event });
        // SAFETY: the caller passes valid arguments; the memory stays until the command has ended.
        unsafe {
            enqueue(queue, CL_COMMAND_READ_BUFFER, work, [Some(memory), None], tail, blocking != 0)
        }
    })
}

pub(super) unsafe extern "C" fn write_rect(
    queue: cl_command_queue,
    memory: cl_mem,
    blocking: cl_bool,
    origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    from: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::share::<Memory>(memory) }?;
        // SAFETY: all lists have three entries.
        let (origin, host_origin, region) =
            unsafe { (three(origin)?, three(host_origin)?, three(region)?) };
        expect_no_gaps(host_origin, region, (host_row_pitch, host_slice_pitch))?;
        let to = memory.rect(origin, region, (row_pitch, slice_pitch))?.merged();
        let from = host(from.cast_mut())?;
        let (work, tail) = (Work::Write { from, to, done: 0 }, Tail { count, waits, event });
        // SAFETY: as in `write`.
        unsafe {
            enqueue(
                queue,
                CL_COMMAND_WRITE_BUFFER_RECT,
                work,
                [Some(memory), None],
                tail,
                blocking != 0,
            )
        }
    })
}

pub(super) unsafe extern "C" fn read_rect(
    queue: cl_command_queue,
    memory: cl_mem,
    blocking: cl_bool,
    origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    row_pitch: usize,
    slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    to: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::share::<Memory>(memory) }?;
        // SAFETY: all lists have three entries.
        let (origin, host_origin, region) =
            unsafe { (three(origin)?, three(host_origin)?, three(region)?) };
        expect_no_gaps(host_origin, region, (host_row_pitch, host_slice_pitch))?;
        let from = memory.rect(origin, region, (row_pitch, slice_pitch))?.merged();
        let to = host(to)?;
        let (work, tail) = (Work::Read { from, to, done: 0 }, Tail { count, waits, event });
        // SAFETY: as in `read`.
        unsafe {
            enqueue(
                queue,
                CL_COMMAND_READ_BUFFER_RECT,
                work,
                [Some(memory), None],
                tail,
                blocking != 0,
            )
        }
    })
}

pub(super) unsafe extern "C" fn copy(
    queue: cl_command_queue,
    source: cl_mem,
    target: cl_mem,
    source_offset: usize,
    target_offset: usize,
    size: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes live handles of this platform.
        let (source, target) =
            unsafe { (object::share::<Memory>(source)?, object::share::<Memory>(target)?) };
        let (from, to) = (source.range(source_offset, size)?, target.range(target_offset, size)?);
        let (work, tail) = (Work::Copy { from, to }, Tail { count, waits, event });
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe {
            enqueue(queue, CL_COMMAND_COPY_BUFFER, work, [Some(source), Some(target)], tail, false)
        }
    })
}

pub(super) unsafe extern "C" fn copy_rect(
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
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes live handles of this platform.
        let (source, target) =
            unsafe { (object::share::<Memory>(source)?, object::share::<Memory>(target)?) };
        // SAFETY: all lists have three entries.
        let (source_origin, target_origin, region) =
            unsafe { (three(source_origin)?, three(target_origin)?, three(region)?) };
        let from = source.rect(source_origin, region, (source_row_pitch, source_slice_pitch))?;
        let to = target.rect(target_origin, region, (target_row_pitch, target_slice_pitch))?;
        let (work, tail) = (Work::Copy { from, to }, Tail { count, waits, event });
        let keep = [Some(source), Some(target)];
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe { enqueue(queue, CL_COMMAND_COPY_BUFFER_RECT, work, keep, tail, false) }
    })
}

pub(super) unsafe extern "C" fn fill(
    queue: cl_command_queue,
    memory: cl_mem,
    pattern: *const c_void,
    pattern_size: usize,
    offset: usize,
    size: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let memory = unsafe { object::share::<Memory>(memory) }?;
        let to = memory.range(offset, size)?;
        let fits = pattern_size.is_power_of_two() && pattern_size <= limits::PATTERN_BYTES_MAX;
        if pattern.is_null()
            || !fits
            || !offset.is_multiple_of(pattern_size)
            || !size.is_multiple_of(pattern_size)
        {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the pattern has its size.
        let pattern =
            unsafe { std::slice::from_raw_parts(pattern.cast::<u8>(), pattern_size) }.to_vec();
        let (work, tail) =
            (Work::Fill { to: to.address, bytes: size, pattern }, Tail { count, waits, event });
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe { enqueue(queue, CL_COMMAND_FILL_BUFFER, work, [Some(memory), None], tail, false) }
    })
}

fn host(address: *mut c_void) -> Result<Address<u8>, Status> {
    if address.is_null() { Err(Status::INVALID_VALUE) } else { Ok(Address::new(address.cast())) }
}

/// Refuses host memory with gaps: the session has none.
fn expect_no_gaps(
    origin: [usize; 3],
    region: [usize; 3],
    (row, slice): (usize, usize),
) -> Result<(), Status> {
    let slice_bytes = region[0].checked_mul(region[1]).ok_or(Status::INVALID_VALUE)?;
    let fits =
        origin == [0; 3] && (row == 0 || row == region[0]) && (slice == 0 || slice == slice_bytes);
    if fits { Ok(()) } else { Err(Status::INVALID_OPERATION) }
}

/// # Safety
/// The list is null or has three entries.
unsafe fn three(list: *const usize) -> Result<[usize; 3], Status> {
    if list.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so the caller says that it has three entries.
    Ok(unsafe { list.cast::<[usize; 3]>().read() })
}
