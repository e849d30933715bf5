//! Launches, markers, barriers and migrations, and the code that all enqueue functions share.

use penstock_cl_sys::{
    CL_COMMAND_BARRIER, CL_COMMAND_MARKER, CL_COMMAND_MIGRATE_MEM_OBJECTS,
    CL_COMMAND_NDRANGE_KERNEL, CL_INVALID_EVENT_WAIT_LIST, CL_INVALID_WORK_DIMENSION,
    cl_command_queue, cl_event, cl_int, cl_kernel, cl_mem, cl_mem_migration_flags, cl_uint,
};
use penstock_wire::status::Status;

use super::command::Work;
use super::kernel::Kernel;
use super::memory::Memory;
use super::object::{self, Ref};
use super::queue::Queue;
use super::stream::Wish;

/// The last arguments of each enqueue function.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) count: cl_uint,
    pub(super) waits: *const cl_event,
    pub(super) event: *mut cl_event,
}

/// Enqueues a command. If it is `blocking`, waits for its end.
///
/// # Safety
/// The queue is one of ours or null, and the tail is as OpenCL requires.
pub(super) unsafe fn enqueue(
    queue: cl_command_queue,
    command: u32,
    work: Work,
    keep: [Option<Ref<Memory>>; 2],
    tail: Tail,
    blocking: bool,
) -> Result<(), Status> {
    // SAFETY: the caller passes a queue of ours or null.
    let queue = unsafe { object::get::<Queue>(queue) }?;
    // SAFETY: the caller passes `count` live events.
    let waits =
        unsafe { object::share_list(tail.count, tail.waits, Status(CL_INVALID_EVENT_WAIT_LIST)) }?;
    let wish = Wish { command, waits, event: blocking || !tail.event.is_null(), keep };
    let event = queue.stream.enqueue(work, wish)?;
    let Some(event) = event else { return Ok(()) };
    if !tail.event.is_null() {
        // SAFETY: not null, so the caller made it writable.
        unsafe { tail.event.write(object::give(event.clone())) };
    }
    if blocking {
        let status = Status(event.wait_until_ended());
        return status.ok();
    }
    Ok(())
}

/// Reads the first `dims` sizes of a list; the others become `unused`.
///
/// # Safety
/// The list is null or has `dims` entries.
unsafe fn sizes(list: *const usize, dims: usize, unused: usize) -> Option<[usize; 3]> {
    if list.is_null() {
        return None;
    }
    let mut sizes = [unused; 3];
    for (index, size) in sizes.iter_mut().enumerate().take(dims) {
        // SAFETY: the caller says that there are `dims` entries.
        *size = unsafe { list.add(index).read() };
    }
    Some(sizes)
}

pub(super) unsafe extern "C" fn launch(
    queue: cl_command_queue,
    kernel: cl_kernel,
    dims: cl_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let kernel = unsafe { object::get::<Kernel>(kernel) }?;
        let dims = usize::try_from(dims).unwrap_or(0);
        if !(1..=3).contains(&dims) {
            return Err(Status(CL_INVALID_WORK_DIMENSION));
        }
        // SAFETY: all lists have `dims` entries or are null.
        let (offset, global, local) =
            unsafe { (sizes(offset, dims, 0), sizes(global, dims, 1), sizes(local, dims, 1)) };
        let global = global.ok_or(Status::INVALID_VALUE)?;
        let work = Work::Launch(kernel.launch(dims, offset, global, local)?);
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe {
            enqueue(
                queue,
                CL_COMMAND_NDRANGE_KERNEL,
                work,
                [None, None],
                Tail { count, waits, event },
                false,
            )
        }
    })
}

pub(super) unsafe extern "C" fn marker(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        let tail = Tail { count, waits, event };
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe { enqueue(queue, CL_COMMAND_MARKER, Work::Nothing, [None, None], tail, false) }
    })
}

pub(super) unsafe extern "C" fn barrier(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        let tail = Tail { count, waits, event };
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe { enqueue(queue, CL_COMMAND_BARRIER, Work::Nothing, [None, None], tail, false) }
    })
}

/// Moves nothing: a context has one device, so all memory is already there.
pub(super) unsafe extern "C" fn migrate(
    queue: cl_command_queue,
    _number: cl_uint,
    _list: *const cl_mem,
    _flags: cl_mem_migration_flags,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    object::code(|| {
        let tail = Tail { count, waits, event };
        // SAFETY: the caller passes valid handles, lists and locations.
        unsafe {
            enqueue(queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, Work::Nothing, [None, None], tail, false)
        }
    })
}
