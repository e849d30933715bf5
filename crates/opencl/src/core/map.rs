//! Mapping: regions of memory objects in the host's memory.
//!
//! A map reads the region into the object's host memory: its shadow, or what the program gave with `CL_MEM_USE_HOST_PTR`,
//! where only what differs is written, because that may lie in pages that nobody can write. An unmap writes the region
//! back if it was mapped for writing, and nothing else. The bytes to write are taken when the unmap is sent: from the call
//! on the program may not touch them, but commands before the unmap may still write them.

use penstock_cl_sys::*;
use penstock_client::{Event, Want};
use penstock_trial::{Defect, planted};

use super::memory::{Mem, keep};
use super::queue::Queue;
use super::target::{HostSource, HostTarget};
use crate::edge::{ClError, ClResult, Ref};

/// The mapped regions of a memory object.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    open: Vec<Mapped>,
    /// Reads into the host's memory, of maps, that had not ended when last looked.
    arriving: Vec<Event>,
}

/// A part of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// Of a buffer.
    Bytes { offset: usize, size: usize },
    /// Of an image, in pixels.
    Box { origin: [usize; 3], region: [usize; 3] },
}

#[derive(Debug)]
struct Mapped {
    address: usize,
    writes: bool,
    region: Region,
    /// The read that brings the content; none where nothing is read.
    arrival: Option<Event>,
}

impl Maps {
    /// `CL_MEM_MAP_COUNT`.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}

/// Maps a region: its address, and the event. The caller has checked region and flags.
pub(crate) fn map(
    queue: &Queue,
    mem: &Ref<Mem>,
    region: Region,
    flags: cl_map_flags,
    waits: &[Event],
    want: Want,
) -> ClResult<(*mut u8, Event)> {
    let address = mem.host_address()?.wrapping_add(host_offset(mem, region)?);
    let reads = flags & CL_MAP_WRITE_INVALIDATE_REGION == 0;
    let enqueued = if mem.is_shared() {
        // The program looks at what the device works on: whatever the flags, the commands before must have ended.
        queue.pool.reached(&mem.pool, host_source(mem, region)?.place(), waits, want)?
    } else if reads {
        read(queue, mem, region, address, waits)?
    } else {
        discard(queue, mem, waits, want)?
    };
    let event = enqueued.unwrap_or_else(|| Event::ended(penstock_wire::Status::OK));
    let arrival = reads.then(|| event.clone());
    let writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0;
    let mut maps = mem.maps();
    maps.arriving.retain(|event| event.known_status().is_none());
    maps.arriving.extend(arrival.clone());
    maps.open.push(Mapped { address: address.addr(), writes, region, arrival });
    Ok((address, event))
}

/// Maps a region whose content does not matter: nobody else writes to the host's memory, but reads that are on their way.
fn discard(queue: &Queue, mem: &Mem, waits: &[Event], want: Want) -> ClResult<Option<Event>> {
    let mut all = waits.to_vec();
    all.extend(mem.maps().arriving.iter().filter(|event| event.known_status().is_none()).cloned());
    if all.is_empty() && want == Want::Nothing {
        return Ok(None);
    }
    Ok(queue.pool.pass(&all, Want::Event)?)
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
            // SAFETY: The region is inside the object's host memory, which `keep` keeps; the program leaves it alone until
            // the event has ended.
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

/// The target, which spares memory that the program gave.
fn sparing(mem: &Mem, target: Box<HostTarget>) -> Box<HostTarget> {
    if mem.host_ptr == 0 { target } else { target.only_changes() }
}

/// Forgets a map that failed.
pub(crate) fn forget(mem: &Mem, address: usize) {
    let mut maps = mem.maps();
    if let Some(index) = maps.open.iter().rposition(|mapped| mapped.address == address) {
        maps.open.remove(index);
    }
}

/// Unmaps the region that was mapped to `address`.
pub(crate) fn unmap(
    queue: &Queue,
    mem: &Ref<Mem>,
    address: usize,
    waits: &[Event],
    want: Want,
) -> ClResult<Option<Event>> {
    let mapped = {
        let mut maps = mem.maps();
        // "CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by clEnqueueMapBuffer or clEnqueueMapImage for
        // memobj." Regions that were mapped at the same address end in reverse order.
        let found = maps.open.iter().rposition(|mapped| mapped.address == address);
        maps.open.remove(found.ok_or(ClError(CL_INVALID_VALUE))?)
    };
    if mem.is_shared() {
        // Nothing is to be written, but what comes behind sees what commands before the unmap still write there.
        let written = host_source(mem, mapped.region)?.place();
        return Ok(queue.pool.released(written, waits, want)?);
    }
    if !mapped.writes {
        return Ok(queue.pool.pass(waits, want)?);
    }
    // If the content does not come, the program has not seen it, and nothing is written back.
    let arrival =
        mapped.arrival.iter().filter(|arrival| arrival.poll().is_none_or(|status| status.is_error()));
    let waits: Vec<Event> = waits.iter().chain(arrival).cloned().collect();
    write(queue, mem, &mapped, &waits, want)
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

/// The region, or with a planted defect its first page.
fn first_page(region: Region) -> Region {
    match region {
        Region::Bytes { offset, size } if planted(Defect::UnmapPage) => {
            Region::Bytes { offset, size: size.min(4096) }
        }
        region => region,
    }
}

/// The bytes of a region in the host's memory.
fn host_source(mem: &Ref<Mem>, region: Region) -> ClResult<HostSource> {
    let address: *const u8 = mem.host_address()?.wrapping_add(host_offset(mem, region)?);
    Ok(match region {
        // SAFETY: The region is inside the object's host memory, which `keep` keeps. Who takes the bytes does so when the
        // program has unmapped it, and so does not write.
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

/// Where a region begins in its object's host memory.
fn host_offset(mem: &Mem, region: Region) -> ClResult<usize> {
    Ok(match region {
        Region::Bytes { offset, .. } => offset,
        Region::Box { origin, .. } => mem.image()?.host_offset(origin),
    })
}
