//! Mapping of regions of memory objects to host memory.
//!
//! A map reads the region into the object's host memory. The host memory is a shadow of the object,
//! or the program's memory with `CL_MEM_USE_HOST_PTR`. The program's memory may lie in read-only
//! pages, so a map writes only the bytes there that differ. An unmap writes exactly the region back
//! if it was mapped for writing. The client takes the bytes when it sends the unmap. It does not
//! take them in the call, because commands before the unmap may still write them. The program may
//! not touch them after the call.

use penstock_cl_sys::*;
use penstock_client::{Event, Want};
use penstock_trial::{Defect, planted};
use penstock_wire::Status;

use super::mapping::{Mapped, Outcome, Region};
use super::memory::{Mem, keep};
use super::queue::Queue;
use super::target::{HostSource, HostTarget};
use crate::edge::{ClError, ClResult, Ref};

/// Maps a region and returns its address and the event. The caller has checked region and flags.
pub(crate) fn map(
    queue: &Queue,
    mem: &Ref<Mem>,
    region: Region,
    flags: cl_map_flags,
    waits: &[Event],
    want: Want,
) -> ClResult<(*mut u8, Event)> {
    queue.pool.count_map();
    let address = mem.host_address()?.wrapping_add(host_offset(mem, region)?);
    let reads = flags & CL_MAP_WRITE_INVALIDATE_REGION == 0;
    let ended = || Event::ended(Status::OK);
    let outcome = if mem.is_shared() {
        // The program sees the device's memory, so earlier commands must always have ended.
        let place = host_source(mem, region)?.place();
        Outcome::of_read(queue.pool.reached(&mem.pool, place, waits, want)?.unwrap_or_else(ended))
    } else if reads {
        Outcome::of_read(read(queue, mem, region, address, waits)?.unwrap_or_else(ended))
    } else {
        discard(queue, mem, waits, want)?
    };
    let event = outcome.event.clone();
    let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
    let mut maps = mem.maps();
    maps.arriving.retain(|event| event.known_status().is_none());
    maps.arriving.extend(reads.then(|| event.clone()));
    maps.open.push(Mapped { address: address.addr(), writes, region, outcome });
    Ok((address, event))
}

/// Maps a region whose content does not matter. Only earlier reads may still write to host memory.
fn discard(queue: &Queue, mem: &Mem, waits: &[Event], want: Want) -> ClResult<Outcome> {
    let mut all = waits.to_vec();
    all.extend(mem.maps().arriving.iter().filter(|event| event.known_status().is_none()).cloned());
    let is_needed = !all.is_empty() || want != Want::Nothing;
    let enqueued = if is_needed { queue.pool.pass(&all, Want::Event)? } else { None };
    Ok(Outcome::of_discard(enqueued.unwrap_or_else(|| Event::ended(Status::OK)), &all))
}

fn read(
    queue: &Queue,
    mem: &Ref<Mem>,
    region: Region,
    address: *mut u8,
    waits: &[Event],
) -> ClResult<Option<Event>> {
    match region {
        Region::Bytes { offset, size } => {
            // SAFETY: The region lies in the object's host memory, which `keep` keeps alive. The
            // program does not touch it until the event has ended.
            let target = unsafe { HostTarget::linear(address, size, keep(mem)) };
            let target = sparing(mem, target);
            let range = penstock_client::Range { offset: offset as u64, size: size as u64 };
            Ok(queue.pool.read(&mem.pool, range, target, waits, Want::Event)?)
        }
        Region::Box { origin, region } => {
            let image = mem.image()?;
            let host = image.host_region(region);
            // SAFETY: As above; the rows of a checked region lie in the image's host memory.
            let target = unsafe {
                HostTarget::new(address, image.host.pieces(host), host.iter().product(), keep(mem))
            };
            let target = sparing(mem, target);
            let area = (origin.map(|n| n as u64), region.map(|n| n as u64));
            Ok(queue.pool.read_image(&mem.pool, area, target, waits)?)
        }
    }
}

/// Returns the target. Into memory that the program gave, only changed bytes are written.
fn sparing(mem: &Mem, target: Box<HostTarget>) -> Box<HostTarget> {
    if mem.host_ptr == 0 { target } else { target.only_changes() }
}

/// Removes a map that failed.
pub(crate) fn forget(mem: &Mem, address: usize) {
    let mut maps = mem.maps();
    if let Some(index) = maps.open.iter().rposition(|mapped| mapped.address == address) {
        maps.open.remove(index);
    }
}

/// Unmaps the region that was mapped at `address`.
pub(crate) fn unmap(
    queue: &Queue,
    mem: &Ref<Mem>,
    address: usize,
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let mapped = {
        let mut maps = mem.maps();
        // "CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by clEnqueueMapBuffer or
        // clEnqueueMapImage for memobj." Regions mapped at the same address end in reverse order.
        let found = maps.open.iter().rposition(|mapped| mapped.address == address);
        maps.open.remove(found.ok_or(ClError(CL_INVALID_VALUE))?)
    };
    if mem.is_shared() {
        // Nothing is written, but later commands must see what earlier ones still write.
        let written = host_source(mem, mapped.region)?.place();
        return Ok(queue.pool.released(written, waits, want)?);
    }
    if !mapped.writes {
        return Ok(queue.pool.pass(waits, want)?);
    }
    write(queue, mem, &mapped, &mapped.outcome.waits_of_unmap(waits), want)
}

fn write(
    queue: &Queue,
    mem: &Ref<Mem>,
    mapped: &Mapped,
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let source = host_source(mem, first_page(mapped.region))?;
    match mapped.region {
        Region::Bytes { offset, .. } => {
            Ok(queue.pool.write(&mem.pool, offset as u64, &source, waits, want)?)
        }
        Region::Box { origin, region } => {
            let area = (origin.map(|n| n as u64), region.map(|n| n as u64));
            Ok(queue.pool.write_image(&mem.pool, area, &source, waits, want)?)
        }
    }
}

/// Returns the region, or its first page with a planted defect.
fn first_page(region: Region) -> Region {
    match region {
        Region::Bytes { offset, size } if planted(Defect::UnmapPage) => {
            Region::Bytes { offset, size: size.min(4096) }
        }
        region => region,
    }
}

/// Returns the bytes of a region in host memory.
fn host_source(mem: &Ref<Mem>, region: Region) -> ClResult<HostSource> {
    let address: *const u8 = mem.host_address()?.wrapping_add(host_offset(mem, region)?);
    Ok(match region {
        // SAFETY: The region lies in the object's host memory, which `keep` keeps alive. The bytes
        // are taken when the program has unmapped the region and no longer writes to it.
        Region::Bytes { size, .. } => unsafe { HostSource::linear(address, size, keep(mem)) },
        Region::Box { region, .. } => {
            let image = mem.image()?;
            let host = image.host_region(region);
            let (pieces, bytes) = (image.host.pieces(host), host.iter().product());
            // SAFETY: As above; the rows of a checked region lie in the image's host memory.
            unsafe { HostSource::new(address, pieces, bytes, keep(mem)) }
        }
    })
}

/// Returns the offset of a region in its object's host memory.
fn host_offset(mem: &Mem, region: Region) -> ClResult<usize> {
    Ok(match region {
        Region::Bytes { offset, .. } => offset,
        Region::Box { origin, .. } => mem.image()?.host_offset(origin),
    })
}
