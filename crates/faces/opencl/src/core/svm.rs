//! Coarse-grained shared virtual memory: the same addresses in the program and in the workers.
//! Devices use the workers' memory. The program sees a range while it is mapped; mapping moves the
//! content as for a buffer.

use std::sync::Arc;

use penstock_cl_sys::*;
use penstock_client::{Event, HostShape, Memory, Want};
use penstock_process::Lock;
use penstock_wire::Status;

use super::area::{Area, MappedRange};
use super::context::Context;
use super::mapping::Outcome;
use super::queue::Queue;
use super::shadow::Pages;
use super::target::{HostSource, HostTarget};
use crate::edge::{ClError, ClResult, Ref, require};

/// Number of addresses tried before an allocation fails: an address may be taken in some worker.
const ATTEMPTS: usize = 8;

/// Allocates shared virtual memory and returns its address. Returns `None` if the context's devices
/// or the workers cannot.
pub(crate) fn allocate(context: &Ref<Context>, size: usize, alignment: cl_uint) -> Option<usize> {
    // Every device must see the same memory.
    let coarse = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    let all = context
        .devices
        .iter()
        .all(|device| device.number(CL_DEVICE_SVM_CAPABILITIES) & coarse != 0);
    if !all {
        return None;
    }
    for attempt in 0..ATTEMPTS {
        let pages = Pages::for_svm(size, alignment as usize, attempt)?;
        let address = pages.address().addr();
        // Buffers over this memory may have any access flags.
        let made = Memory::svm(
            &context.pool,
            CL_MEM_READ_WRITE,
            size as u64,
            alignment.max(1),
            address as u64,
        );
        if let Ok(pool) = made {
            let area = Arc::new(Area { pool, pages, size, maps: Lock::default() });
            context.svm.insert(address, area);
            return Some(address);
        }
    }
    None
}

/// Returns the allocation that contains a range.
pub(crate) fn find(context: &Context, address: usize, size: usize) -> Option<Arc<Area>> {
    context.svm.at(address).filter(|area| area.offset(address, size).is_some())
}

/// Maps a range and returns the event of the map.
pub(crate) fn map(
    queue: &Queue,
    area: &Arc<Area>,
    (start, size): (usize, usize),
    flags: cl_map_flags,
    waits: &[Event],
) -> ClResult<Event> {
    let range = area.range(start, size)?;
    let reads = flags & CL_MAP_WRITE_INVALIDATE_REGION == 0;
    let enqueued = if reads {
        // SAFETY: the range lies in the allocation, which the target keeps alive. The program does
        // not touch the range until the event has ended.
        let target = unsafe { HostTarget::linear(area.host(start), size, Some(area.clone())) };
        queue.pool.read(&area.pool, range, target, waits, Want::Event)?
    } else {
        queue.pool.pass(waits, Want::Event)?
    };
    let event = enqueued.unwrap_or_else(|| Event::ended(Status::OK));
    let outcome = if reads {
        Outcome::of_read(event.clone())
    } else {
        Outcome::of_discard(event.clone(), waits)
    };
    let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
    area.maps.lock().push(MappedRange { start, size, writes, outcome });
    Ok(event)
}

/// Removes a map that failed.
pub(crate) fn forget(area: &Area, start: usize) {
    let mut maps = area.maps.lock();
    if let Some(index) = maps.iter().rposition(|mapped| mapped.start == start) {
        maps.remove(index);
    }
}

/// Unmaps the range that starts at `start`.
pub(crate) fn unmap(
    queue: &Queue,
    area: &Arc<Area>,
    start: usize,
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let mapped = {
        let mut maps = area.maps.lock();
        let found = maps.iter().rposition(|mapped| mapped.start == start);
        found.map(|index| maps.remove(index))
    };
    match mapped {
        Some(mapped) if mapped.writes => {
            let range = area.range(start, mapped.size)?;
            let waits = mapped.outcome.waits_of_unmap(waits);
            // SAFETY: the range lies in the allocation, which the source keeps alive. The program
            // has unmapped it and so does not write to it.
            let source =
                unsafe { HostSource::linear(area.host(start), mapped.size, Some(area.clone())) };
            Ok(queue.pool.write(&area.pool, range.offset, &source, &waits, want)?)
        }
        _ => Ok(queue.pool.pass(waits, want)?),
    }
}

/// Location of one side of a copy.
enum Side {
    /// Memory of the program.
    Host,
    /// Memory of the devices.
    Area(Arc<Area>),
}

/// Returns the location of a range's content.
fn side(queue: &Queue, address: usize, size: usize) -> ClResult<Side> {
    let Some(area) = queue.context.svm.at(address) else { return Ok(Side::Host) };
    // "CL_INVALID_VALUE ...": the range exceeds its allocation.
    require(area.offset(address, size).is_some(), CL_INVALID_VALUE)?;
    Ok(if area.is_mapped(address, size) { Side::Host } else { Side::Area(area) })
}

/// Implements `clEnqueueSVMMemcpy`.
///
/// # Safety
/// Memory that is not shared virtual memory is readable and writable until the command ends.
pub(crate) unsafe fn copy(
    queue: &Queue,
    target: *mut u8,
    source: *const u8,
    size: usize,
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let (to, from) = (target.addr(), source.addr());
    match (side(queue, to, size)?, side(queue, from, size)?) {
        (Side::Area(to_area), Side::Area(from_area)) => {
            let (to, from) = (to_area.range(to, size)?, from_area.range(from, size)?);
            let (to, from) = ((&to_area.pool, to.offset), (&from_area.pool, from.offset));
            Ok(queue.pool.copy(from, to, size as u64, waits, want)?)
        }
        (Side::Area(area), Side::Host) => {
            let range = area.range(to, size)?;
            // SAFETY: guaranteed by the caller; the source keeps its own allocation alive.
            let source = unsafe {
                HostSource::linear(source, size, queue.context.svm.at(from).map(|area| area as _))
            };
            Ok(queue.pool.write(&area.pool, range.offset, &source, waits, want)?)
        }
        (Side::Host, Side::Area(area)) => {
            let range = area.range(from, size)?;
            // SAFETY: guaranteed by the caller.
            let target = unsafe {
                HostTarget::linear(target, size, queue.context.svm.at(to).map(|area| area as _))
            };
            Ok(queue.pool.read(&area.pool, range, target, waits, Want::Event)?)
        }
        (Side::Host, Side::Host) => {
            let (to, from) = (target.expose_provenance(), source.expose_provenance());
            let shape = |address: usize| Some(HostShape::linear(address as u64, size as u64));
            after(queue, (shape(from), shape(to)), waits, move || {
                let from: *const u8 = std::ptr::with_exposed_provenance(from);
                // SAFETY: guaranteed by the caller. Overlapping regions were refused, and
                // `copy_from` allows overlap.
                unsafe { std::ptr::with_exposed_provenance_mut::<u8>(to).copy_from(from, size) };
            })
        }
    }
}

/// Implements the function `clEnqueueSVMMemFill`.
pub(crate) fn fill(
    queue: &Queue,
    (start, size): (usize, usize),
    pattern: &[u8],
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let area = queue.context.svm.at(start).ok_or(ClError(CL_INVALID_VALUE))?;
    let range = area.range(start, size)?;
    if !area.is_mapped(start, size) {
        return Ok(queue.pool.fill(&area.pool, pattern, range, waits, want)?);
    }
    let pattern = pattern.to_vec();
    let written = HostShape::linear(start as u64, size as u64);
    after(queue, (None, Some(written)), waits, move || {
        let (to, mut filled) = (area.host(start), pattern.len().min(size));
        // SAFETY: the first `size` bytes from `to` are inside the allocation.
        unsafe { to.copy_from_nonoverlapping(pattern.as_ptr(), filled) };
        // What is filled is a multiple of the pattern, and is copied behind itself.
        while filled > 0 && filled < size {
            let more = filled.min(size - filled);
            // SAFETY: as above, and both parts have `more` bytes of it.
            unsafe { to.wrapping_add(filled).copy_from_nonoverlapping(to, more) };
            filled += more;
        }
    })
}

/// Enqueues a command that the client runs when earlier commands and `waits` have ended. `uses` are
/// the parts of the program's memory that the command reads and writes.
pub(crate) fn after(
    queue: &Queue,
    uses: (Option<HostShape>, Option<HostShape>),
    waits: &[Event],
    run: impl FnOnce() + Send + 'static,
) -> ClResult<Option<Event>> {
    let done = queue.pool.run(uses, waits, move |status| {
        if !status.is_error() {
            run();
        }
        status
    });
    Ok(Some(done?))
}
